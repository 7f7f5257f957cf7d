/* A first and a last turn with calls of their own: turns [steps] */
#include "phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 9);
    double word = 0.0, other, *file = calloc((size_t)size, sizeof *file);
    for (int s = 0; s < steps; s++) {
        if (s == 0)
            MPI_Bcast(&word, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Sendrecv(&word, 1, MPI_DOUBLE, (rank + 1) % size, 0, &other, 1, MPI_DOUBLE,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (s == 0)
            MPI_Scan(&word, &other, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(&word, &other, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (s == steps - 1)
            MPI_Gather(&word, 1, MPI_DOUBLE, file, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        if (s == steps - 1)
            MPI_Reduce(&word, &other, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    }
    free(file);
    MPI_Finalize();
    return 0;
}
