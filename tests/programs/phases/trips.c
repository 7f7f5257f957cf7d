/* Inner loops of no turn, one turn and up to three, by rank: trips [steps] */
#include "phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 8);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    double word = 0.0, other;
    for (int s = 0; s < steps; s++) {
        for (int k = 0; k < rank % 4; k++)
            MPI_Send(&word, 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD);
        for (int k = 0; k < left % 4; k++)
            MPI_Recv(&other, 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 0; k < 1; k++)
            MPI_Allreduce(&word, &other, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int s = 0; s < 0; s++)
        MPI_Bcast(&word, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
