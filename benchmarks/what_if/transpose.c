/* A matrix in slabs of rows is filtered along its rows, transposed and filtered along its columns.
 *
 *     transpose EDGE STEPS FILTER EVEN
 *
 * FILTER: per cent of the usual work of the filter along the columns; EVEN 0: the last quarter of
 * the ranks has twice the work of the others there, 1: all have the mean. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void filter(double *a, long number, long times)
{
    for (long k = 0; k < times; k++)
        for (long i = 1; i < number; i++)
            a[i] = 0.5 * (a[i] + a[i - 1]);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long edge = atol(argv[1]), steps = atol(argv[2]), share = atol(argv[3]);
    int even = atoi(argv[4]);
    long rows = edge / size, block = rows * rows, number = rows * edge;
    double *a = calloc(number, sizeof *a), *b = calloc(number, sizeof *b), most;
    /* in hundredths of the usual work: the mean is 100 */
    long weight = even ? 100 : 4 * rank >= 3 * size ? 160 : 80;
    for (long s = 0; s < steps; s++) {
        filter(a, number, 4);
        MPI_Alltoall(a, block, MPI_DOUBLE, b, block, MPI_DOUBLE, MPI_COMM_WORLD);
    }
    for (long s = 0; s < steps; s++) {
        filter(b, number * weight / 200, share / 10);
        MPI_Allreduce(b, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        a[0] += most;
    }
    if (rank == 0)
        printf("%g\n", a[0]);
    free(a);
    free(b);
    MPI_Finalize();
    return 0;
}
