/* A square grid of W by W points whose rows are dealt to the workers, with a zero row or column
 * around it. A worker's block has a row above and one below, which the master keeps up to date:
 * it gets the first and the last row of each worker and hands them on to the neighbours. */
#ifndef P3S_EXAMPLES_GRID_H
#define P3S_EXAMPLES_GRID_H

#include "worker.h"

struct grid {
    double *now, *next; /* of a worker: count + 2 rows of W + 2 points */
    double *borders;    /* of the master: first and last row of each worker, W points each */
    double *inner;      /* of a worker: its rows without the points around, for the result */
};

static inline double *row(const struct job *job, double *block, long i)
{
    return block + (size_t)i * (size_t)(job->workload + 2);
}

static inline struct grid *grid_of(const struct job *job)
{
    static struct grid grid;
    if (job->rank == 0) {
        grid.borders = zeros((size_t)(2 * job->workers * job->workload));
        return &grid;
    }
    size_t points = (size_t)(count_of(job, job->own) + 2) * (size_t)(job->workload + 2);
    grid.now = zeros(points);
    grid.next = zeros(points);
    return &grid;
}

static inline double *border(const struct job *job, const struct grid *grid, int worker, int last)
{
    return grid->borders + (2 * worker + last) * job->workload;
}

/* The rows next to a worker's: the last one above, the first one below; outside they are 0. */
static inline void fill_borders(const struct job *job, void *state, int worker, double *out)
{
    struct grid *grid = state;
    size_t bytes = sizeof *out * (size_t)job->workload;
    memset(out, 0, 2 * bytes);
    if (worker > 0)
        memcpy(out, border(job, grid, worker - 1, 1), bytes);
    if (worker + 1 < job->workers)
        memcpy(out + job->workload, border(job, grid, worker + 1, 0), bytes);
}

static inline void set_borders(const struct job *job, struct grid *grid, const double *out)
{
    size_t bytes = sizeof *out * (size_t)job->workload;
    memcpy(row(job, grid->now, 0) + 1, out, bytes);
    memcpy(row(job, grid->now, count_of(job, job->own) + 1) + 1, out + job->workload, bytes);
}

static inline void copy_borders(const struct job *job, struct grid *grid, double *back)
{
    size_t bytes = sizeof *back * (size_t)job->workload;
    memcpy(back, row(job, grid->now, 1) + 1, bytes);
    memcpy(back + job->workload, row(job, grid->now, count_of(job, job->own)) + 1, bytes);
}

static inline void keep_borders(const struct job *job, void *state, int worker, const double *back)
{
    memcpy(border(job, state, worker, 0), back, sizeof *back * 2 * (size_t)job->workload);
}

static inline long inner_size(const struct job *job, int worker)
{
    return job->workload * count_of(job, worker);
}

static inline const double *inner_of(const struct job *job, void *state)
{
    struct grid *grid = state;
    long n = job->workload;
    grid->inner = zeros((size_t)inner_size(job, job->own));
    for (long i = 0; i < count_of(job, job->own); i++)
        memcpy(grid->inner + i * n, row(job, grid->now, i + 1) + 1, sizeof(double) * (size_t)n);
    return grid->inner;
}

#endif
