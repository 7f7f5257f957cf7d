/* Strips between rows and columns whose bounds are ceil(c*L/p), x fastest: ceilcut [nx ny steps] */
#include "phases/phases.h"

static int bound(int c, int length, int parts) { return (c * length + parts - 1) / parts; }

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int nx = argument(argc, argv, 1, 157), ny = argument(argc, argv, 2, 211), p[2] = {0, 0};
    int steps = argument(argc, argv, 3, 3);
    MPI_Dims_create(size, 2, p);
    int px = p[1], py = p[0], x = rank % px, y = rank / px;
    int lx = bound(x + 1, nx, px) - bound(x, nx, px), ly = bound(y + 1, ny, py) - bound(y, ny, py);
    int *out = calloc(2 * (nx + ny), sizeof *out), *in = calloc(2 * (nx + ny), sizeof *in);
    for (int s = 0; s < steps; s++) {
        if (x + 1 < px)
            MPI_Send(out, 2 * ly, MPI_INT, rank + 1, 7, MPI_COMM_WORLD);
        if (x > 0)
            MPI_Recv(in, 2 * ly, MPI_INT, rank - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (y > 0)
            MPI_Send(out, 2 * lx, MPI_INT, rank - px, 8, MPI_COMM_WORLD);
        if (y + 1 < py)
            MPI_Recv(in, 2 * lx, MPI_INT, rank + px, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, out, 3, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
