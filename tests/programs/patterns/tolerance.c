/* A ring until the residual, a sum over all ranks, is small: ten times up to 9 ranks, then eleven. */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    double own = 1.0 / ((rank + 1.0) * (rank + 1.0)), sum = 0.0, field[50] = {0}, other[50];
    do {
        MPI_Sendrecv(field, 50, MPI_DOUBLE, (rank + 1) % size, 0, other, 50, MPI_DOUBLE,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        own /= 2.0;
        MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    } while (sum > 1.55 / 1024);
    MPI_Finalize();
    return 0;
}
