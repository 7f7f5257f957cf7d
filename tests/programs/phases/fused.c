/* A perfect nest, with nothing between the turns of the outer loop: fused [outer] [inner] */
#include "phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int outer = argument(argc, argv, 1, 4), inner = argument(argc, argv, 2, 3);
    double word = 0.0, other;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < outer; i++)
        for (int j = 1; j <= inner; j++)
            MPI_Sendrecv(&word, 1, MPI_DOUBLE, (rank + j) % size, 0, &other, 1, MPI_DOUBLE,
                         (rank + size - j % size) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
