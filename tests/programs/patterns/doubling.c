/* An all-gather on a hypercube: what is sent doubles with the bit, highest bit last:
   doubling [words rounds] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 5), rounds = argument(argc, argv, 2, 5);
    double *out = calloc(words * size, sizeof *out), *in = calloc(words * size, sizeof *in);
    for (int s = 0; s < rounds; s++)
        for (int bit = 1; bit < size; bit *= 2) {
            MPI_Request q;
            MPI_Irecv(in, words * bit, MPI_DOUBLE, rank ^ bit, bit, MPI_COMM_WORLD, &q);
            MPI_Send(out, words * bit, MPI_DOUBLE, rank ^ bit, bit, MPI_COMM_WORLD);
            MPI_Wait(&q, MPI_STATUS_IGNORE);
        }
    MPI_Finalize();
    return 0;
}
