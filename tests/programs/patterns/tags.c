/* Tags that name the sender, the receiver, the iteration: tags [words steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 17), steps = argument(argc, argv, 2, 6);
    double *out = calloc(2 * words, sizeof *out), *in = calloc(2 * words, sizeof *in);
    int up = (rank + 2) % size, down = (rank + size - 2) % size;
    for (int s = 0; s < steps; s++) {
        MPI_Request q;
        MPI_Irecv(in, words, MPI_DOUBLE, down, 100 + down, MPI_COMM_WORLD, &q);
        MPI_Send(out, words, MPI_DOUBLE, up, 100 + rank, MPI_COMM_WORLD);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        MPI_Irecv(in, 2 * words, MPI_DOUBLE, up, 1000 * s + rank, MPI_COMM_WORLD, &q);
        MPI_Send(out, 2 * words, MPI_DOUBLE, down, 1000 * s + down, MPI_COMM_WORLD);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
