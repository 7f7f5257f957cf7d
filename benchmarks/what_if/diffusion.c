/* Diffusion on a line of cells with a source term: the cells of some ranks cost more.
 *
 *     diffusion CELLS STEPS SOURCE EVEN
 *
 * Each step: neighbours exchange their edges, a sweep over the cells (SOURCE per cent of the usual
 * work), then, in a loop of its own, sums of moments over all ranks. EVEN 1: every rank has the mean
 * of the sweeps, else every second rank has three times as much as the others. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOMENTS = 256 };

static double sweep(double *u, long cells, long times)
{
    double sum = 0.0;
    for (long k = 0; k < times; k++)
        for (long i = 1; i <= cells; i++) {
            u[i] = 0.25 * u[i - 1] + 0.5 * u[i] + 0.25 * u[i + 1];
            sum += u[i];
        }
    return sum;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long cells = atol(argv[1]) / size, steps = atol(argv[2]), share = atol(argv[3]);
    int even = atoi(argv[4]);
    double *u = calloc(cells + 2, sizeof *u), moments[MOMENTS], all[MOMENTS];
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    /* in hundredths of the usual work: the mean is 100 */
    long weight = even ? 100 : rank % 2 ? 150 : 50;
    long mine = cells * weight / 100;
    for (long s = 0; s < steps; s++) {
        MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[cells + 1], 1, MPI_DOUBLE, right, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&u[cells], 1, MPI_DOUBLE, right, 1, &u[0], 1, MPI_DOUBLE, left, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sweep(u, mine < cells ? mine : cells, share / 25);
        sweep(u, mine > cells ? mine - cells : 0, share / 25);
    }
    for (long s = 0; s < steps; s++) {
        for (int m = 0; m < MOMENTS; m++)
            moments[m] = sweep(u, cells / 64, 1);
        MPI_Allreduce(moments, all, MOMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        u[1] += all[0];
    }
    if (rank == 0)
        printf("%g\n", u[1]);
    free(u);
    MPI_Finalize();
    return 0;
}
