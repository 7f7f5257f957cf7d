/* Receives that Testall may have completed and Waitall completes else: tested [words steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 250), steps = argument(argc, argv, 2, 6);
    int reach[3] = {1, 2, size - 1}, done;
    double *out = calloc(words, sizeof *out), *in = calloc(3 * words, sizeof *in);
    for (int s = 0; s < steps; s++) {
        MPI_Request q[3];
        for (int k = 0; k < 3; k++)
            MPI_Irecv(in + k * words, words / (k + 1), MPI_DOUBLE,
                      (rank + size - reach[k] % size) % size, k, MPI_COMM_WORLD, &q[k]);
        for (int k = 0; k < 3; k++)
            MPI_Send(out, words / (k + 1), MPI_DOUBLE, (rank + reach[k]) % size, k, MPI_COMM_WORLD);
        MPI_Testall(3, q, &done, MPI_STATUSES_IGNORE);
        if (!done)
            MPI_Waitall(3, q, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
