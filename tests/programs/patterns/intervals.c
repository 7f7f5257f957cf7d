/* A scatter by halving: the first of [low, high) sends its upper half to the middle,
   low + floor((high - low)/2): intervals [words rounds] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 6), rounds = argument(argc, argv, 2, 4);
    double *data = calloc(words * size, sizeof *data);
    for (int s = 0; s < rounds; s++) {
        int low = 0, high = size;
        while (high - low > 1) {
            int middle = low + (high - low) / 2, length = words * (high - middle);
            if (rank == low)
                MPI_Send(data, length, MPI_DOUBLE, middle, 0, MPI_COMM_WORLD);
            if (rank == middle)
                MPI_Recv(data, length, MPI_DOUBLE, low, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank < middle)
                high = middle;
            else
                low = middle;
        }
    }
    MPI_Finalize();
    return 0;
}
