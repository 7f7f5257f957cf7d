/* Works in a loop; what it cannot do it says, and ends with exit code 0, as programs do. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 0, odd = argc > 2;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (steps < 1 && rank == 0)
        printf("steps must be at least 1\n");
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (odd && size % 2 == 0) {
        if (rank == 0)
            printf("the number of processes must be odd\n");
        steps = 0;
    }
    for (int k = 0; k < steps; k++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
