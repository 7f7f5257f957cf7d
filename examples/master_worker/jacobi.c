/* A linear system (Poisson's equation on a square grid) by Jacobi's method. A worker updates its
 * rows, then copies them, in a parallel region each; it returns its error and its first and last
 * row. The master adds the errors up and hands the rows on to the neighbours. */
#include <math.h>

#include "grid.h"

static double total; /* of the master: the error of this iteration */

static long out_size(const struct job *job, int worker)
{
    (void)worker;
    return 2 * job->workload;
}

static long back_size(const struct job *job, int worker)
{
    return out_size(job, worker) + 1;
}

static void *start(const struct job *job)
{
    return grid_of(job);
}

static void prepare(const struct job *job, void *state)
{
    (void)job;
    (void)state;
    total = 0;
}

static double compute(const struct job *job, void *state, const double *out, double *back)
{
    struct grid *grid = state;
    long rows = count_of(job, job->own), n = job->workload, first = first_of(job, job->own);
    double error = 0;
    set_borders(job, grid, out);
    double begin = MPI_Wtime();
#pragma omp parallel for schedule(static) reduction(+ : error)
    for (long i = 1; i <= rows; i++) {
        const double *above = row(job, grid->now, i - 1), *here = row(job, grid->now, i);
        const double *below = row(job, grid->now, i + 1);
        double *made = row(job, grid->next, i);
        for (long j = 1; j <= n; j++) {
            double source = scatter((unsigned long long)((first + i - 1) * n + j - 1)) - 0.5;
            made[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1] + source);
            error += fabs(made[j] - here[j]);
        }
    }
#pragma omp parallel for schedule(static)
    for (long i = 1; i <= rows; i++)
        for (long j = 1; j <= n; j++)
            row(job, grid->now, i)[j] = row(job, grid->next, i)[j];
    double took = MPI_Wtime() - begin;
    copy_borders(job, grid, back);
    back[2 * n] = error;
    return took;
}

static void merge(const struct job *job, void *state, int worker, const double *back)
{
    keep_borders(job, state, worker, back);
    total += back[2 * job->workload];
}

int main(int argc, char **argv)
{
    const struct program program = {
        .app = "jacobi", .summary = "Poisson's equation by Jacobi's method, one master, K workers.",
        .unit = "rows", .workload = 400, .smallest = 1, .out_size = out_size,
        .back_size = back_size, .start = start, .prepare = prepare, .fill = fill_borders,
        .compute = compute, .merge = merge, .part_size = inner_size, .part = inner_of,
        .distributed = 1};
    return master_and_workers(&program, argc, argv);
}
