/* Levels of a quarter of the ranks each: one level at 4 ranks, two up to 16, then more:
   coarsening [words cycles] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 20), cycles = argument(argc, argv, 2, 4);
    double *data = calloc(words, sizeof *data);
    for (int c = 0; c < cycles; c++) {
        for (int step = 1; step < size; step *= 4) {
            if (rank % step)
                continue;
            if (rank % (4 * step))
                MPI_Send(data, words, MPI_DOUBLE, rank - rank % (4 * step), 0, MPI_COMM_WORLD);
            else
                for (int k = 1; k < 4 && rank + k * step < size; k++)
                    MPI_Recv(data, words, MPI_DOUBLE, rank + k * step, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
        }
        MPI_Bcast(data, words, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
