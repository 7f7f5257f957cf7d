/* Sums up a tree of three children each and the result back down: tree3 [words rounds] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 31), rounds = argument(argc, argv, 2, 6);
    long *sum = calloc(words, sizeof *sum), *part = calloc(words, sizeof *part);
    for (int s = 0; s < rounds; s++) {
        for (int child = 3 * rank + 1; child <= 3 * rank + 3 && child < size; child++)
            MPI_Recv(part, words, MPI_LONG, child, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank) {
            MPI_Send(sum, words, MPI_LONG, (rank - 1) / 3, 0, MPI_COMM_WORLD);
            MPI_Recv(sum, words, MPI_LONG, (rank - 1) / 3, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        for (int child = 3 * rank + 1; child <= 3 * rank + 3 && child < size; child++)
            MPI_Send(sum, words, MPI_LONG, child, 1, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
