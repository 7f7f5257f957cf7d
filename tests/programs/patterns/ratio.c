/* Halo on a grid whose first extent is the first divisor c of n with (n/c)/c <= nx/ny; x fastest:
   ratio [nx ny steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int nx = argument(argc, argv, 1, 168), ny = argument(argc, argv, 2, 84);
    int steps = argument(argc, argv, 3, 4), px = 1;
    while (size % px || (double)(size / px) / px > (double)nx / ny)
        px++;
    int py = size / px, x = rank % px, y = rank / px;
    int lx = nx / px + (x < nx % px), ly = ny / py + (y < ny % py);
    int west = x > 0 ? rank - 1 : MPI_PROC_NULL, east = x < px - 1 ? rank + 1 : MPI_PROC_NULL;
    int south = y > 0 ? rank - px : MPI_PROC_NULL, north = y < py - 1 ? rank + px : MPI_PROC_NULL;
    double *out = calloc(nx + ny, sizeof *out), *in = calloc(4 * (nx + ny), sizeof *in);
    for (int s = 0; s < steps; s++) {
        MPI_Request q[4];
        MPI_Irecv(in, ly, MPI_DOUBLE, west, 1, MPI_COMM_WORLD, &q[0]);
        MPI_Irecv(in + ny, ly, MPI_DOUBLE, east, 2, MPI_COMM_WORLD, &q[1]);
        MPI_Irecv(in + 2 * ny, lx, MPI_DOUBLE, south, 3, MPI_COMM_WORLD, &q[2]);
        MPI_Irecv(in + 2 * ny + nx, lx, MPI_DOUBLE, north, 4, MPI_COMM_WORLD, &q[3]);
        MPI_Send(out, ly, MPI_DOUBLE, east, 1, MPI_COMM_WORLD);
        MPI_Send(out, ly, MPI_DOUBLE, west, 2, MPI_COMM_WORLD);
        MPI_Send(out, lx, MPI_DOUBLE, north, 3, MPI_COMM_WORLD);
        MPI_Send(out, lx, MPI_DOUBLE, south, 4, MPI_COMM_WORLD);
        MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
