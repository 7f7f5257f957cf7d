/* A ring of ranks with two parallel regions an iteration and a part that one thread does.
 * hybrid CELLS ITERATIONS: says how many regions and messages there were. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int level, rank, n;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    long cells = atol(argv[1]) / n, iterations = atol(argv[2]), regions = 0;
    double *a = calloc(cells, sizeof *a), halo[64] = {0}, from[64], sum = 0;
    for (long it = 0; it < iterations; it++) {
        MPI_Sendrecv(halo, 64, MPI_DOUBLE, (rank + 1) % n, 0, from, 64, MPI_DOUBLE,
                     (rank + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        regions++;
#pragma omp parallel for schedule(static)
        for (long i = 0; i < cells; i++)
            for (int k = 0; k < 40; k++)
                a[i] = 0.5 * a[i] + from[k] + 1.0 / (1 + k + i);
        double part = 0;
        regions++;
#pragma omp parallel for reduction(+ : part)
        for (long i = 0; i < cells; i++)
            part += a[i];
        for (long i = 0; i < cells / 4; i++)
            sum += 1.0 / (1.0 + sum + i);
        MPI_Allreduce(MPI_IN_PLACE, &part, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        sum += part;
    }
    if (!rank)
        printf("regions %ld threads %d sum %g\n", regions, omp_get_max_threads(), sum);
    MPI_Finalize();
    return 0;
}
