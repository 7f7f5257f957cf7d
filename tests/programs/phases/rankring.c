/* A ring whose number of shifts depends on the rank: rankring [steps] */
#include "phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 3);
    double word = rank, all;
    for (int s = 0; s < steps; s++) {
        for (int k = rank; k < size - 1; k++)
            MPI_Send(&word, 1, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD);
        for (int k = rank; k > 0 && k < size; k++) /* what the rank before sends */
            MPI_Recv(&word, 1, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&word, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
