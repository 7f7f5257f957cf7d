/* Heat on a square plate, hot in the middle and 0 around: explicit finite differences. A worker
 * returns its two border rows in one message, the master hands them on. */
#include "grid.h"

static long border_size(const struct job *job, int worker)
{
    (void)worker;
    return 2 * job->workload;
}

/* 1 in the middle third of both directions. */
static double hot(const struct job *job, long i, long j)
{
    long n = job->workload, low = n / 3, high = n - n / 3;
    return i >= low && i < high && j >= low && j < high ? 1.0 : 0.0;
}

static void *start(const struct job *job)
{
    struct grid *grid = grid_of(job);
    for (int w = 0; job->rank == 0 && w < job->workers; w++)
        for (long j = 0; j < job->workload; j++) {
            border(job, grid, w, 0)[j] = hot(job, first_of(job, w), j);
            border(job, grid, w, 1)[j] = hot(job, first_of(job, w) + count_of(job, w) - 1, j);
        }
    for (long i = 0; job->rank > 0 && i < count_of(job, job->own); i++)
        for (long j = 0; j < job->workload; j++)
            row(job, grid->now, i + 1)[j + 1] = hot(job, first_of(job, job->own) + i, j);
    return grid;
}

static void prepare(const struct job *job, void *state)
{
    (void)job;
    (void)state;
}

static double compute(const struct job *job, void *state, const double *out, double *back)
{
    struct grid *grid = state;
    const double rate = 0.1;
    long rows = count_of(job, job->own), n = job->workload;
    set_borders(job, grid, out);
    double begin = MPI_Wtime();
#pragma omp parallel for schedule(static)
    for (long i = 1; i <= rows; i++) {
        const double *above = row(job, grid->now, i - 1), *here = row(job, grid->now, i);
        const double *below = row(job, grid->now, i + 1);
        double *made = row(job, grid->next, i);
        for (long j = 1; j <= n; j++)
            made[j] = here[j] + rate * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4 * here[j]);
    }
    double took = MPI_Wtime() - begin;
    double *old = grid->now;
    grid->now = grid->next;
    grid->next = old;
    copy_borders(job, grid, back);
    return took;
}

int main(int argc, char **argv)
{
    const struct program program = {
        .app = "heat", .summary = "Heat on a square plate, one master, K workers.",
        .unit = "rows", .workload = 400, .smallest = 1, .out_size = border_size,
        .back_size = border_size, .start = start, .prepare = prepare, .fill = fill_borders,
        .compute = compute, .merge = keep_borders, .part_size = inner_size, .part = inner_of,
        .distributed = 1};
    return master_and_workers(&program, argc, argv);
}
