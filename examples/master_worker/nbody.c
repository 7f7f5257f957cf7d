/* Gravitation of N bodies, all pairs. The master sends all bodies to every worker, a worker returns
 * the new state of its own; the master sends everything anew in each step. */
#include <math.h>

#include "worker.h"

enum { BODY = 7 }; /* position, velocity, mass */

static long out_size(const struct job *job, int worker)
{
    (void)worker;
    return BODY * job->workload;
}

static long back_size(const struct job *job, int worker)
{
    return BODY * count_of(job, worker);
}

static void *start(const struct job *job)
{
    double *bodies = zeros((size_t)(BODY * job->workload));
    for (long i = 0; i < job->workload; i++) {
        for (int d = 0; d < 3; d++)
            bodies[BODY * i + d] = scatter((unsigned long long)(4 * i + d));
        bodies[BODY * i + 6] =
            (0.5 + scatter((unsigned long long)(4 * i + 3))) / (double)job->workload;
    }
    return bodies;
}

static void prepare(const struct job *job, void *state)
{
    (void)job;
    (void)state;
}

static void fill(const struct job *job, void *state, int worker, double *out)
{
    memcpy(out, state, sizeof *out * (size_t)out_size(job, worker));
}

/* Leapfrog with a softened force; bodies are read as they were, so the order does not matter. */
static double compute(const struct job *job, void *state, const double *bodies, double *back)
{
    const double softening = 1e-3, dt = 1e-4;
    long first = first_of(job, job->own), all = job->workload;
    int own = count_of(job, job->own);
    (void)state;
    double begin = MPI_Wtime();
#pragma omp parallel for schedule(static)
    for (int i = 0; i < own; i++) {
        const double *body = bodies + BODY * (first + i);
        double force[3] = {0, 0, 0};
        for (long j = 0; j < all; j++) {
            const double *other = bodies + BODY * j;
            double x = other[0] - body[0], y = other[1] - body[1], z = other[2] - body[2];
            double square = x * x + y * y + z * z + softening;
            double pull = other[6] / (square * sqrt(square));
            force[0] += pull * x;
            force[1] += pull * y;
            force[2] += pull * z;
        }
        for (int d = 0; d < 3; d++) {
            back[BODY * i + 3 + d] = body[3 + d] + dt * force[d];
            back[BODY * i + d] = body[d] + dt * back[BODY * i + 3 + d];
        }
        back[BODY * i + 6] = body[6];
    }
    return MPI_Wtime() - begin;
}

static void merge(const struct job *job, void *state, int worker, const double *back)
{
    double *bodies = state;
    memcpy(bodies + BODY * first_of(job, worker), back,
           sizeof *back * (size_t)back_size(job, worker));
}

static const double *part(const struct job *job, void *state)
{
    (void)job;
    return state;
}

int main(int argc, char **argv)
{
    const struct program program = {
        .app = "nbody", .summary = "Gravitation of all pairs of bodies, one master, K workers.",
        .unit = "bodies", .workload = 1000, .smallest = 1, .out_size = out_size,
        .back_size = back_size, .start = start, .prepare = prepare, .fill = fill,
        .compute = compute, .merge = merge, .part_size = out_size, .part = part};
    return master_and_workers(&program, argc, argv);
}
