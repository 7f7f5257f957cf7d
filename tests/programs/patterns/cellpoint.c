/* Cells cut at floor(c*L/n), and the last rank has one point more; whole blocks go downwards:
   cellpoint [cells steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int cells = argument(argc, argv, 1, 72), steps = argument(argc, argv, 2, 9);
    int points = (rank + 1) * cells / size - rank * cells / size + (rank == size - 1);
    int up = (rank + 1) % size, down = (rank + size - 1) % size;
    float *out = calloc(cells + 1, sizeof *out), *in = calloc(cells + 1, sizeof *in);
    for (int s = 0; s < steps; s++) {
        MPI_Request q;
        MPI_Irecv(in, cells + 1, MPI_FLOAT, up, s % 2, MPI_COMM_WORLD, &q);
        MPI_Send(out, points, MPI_FLOAT, down, s % 2, MPI_COMM_WORLD);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
