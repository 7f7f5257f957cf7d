/* What the programs of a master and workers share: their command line, the iterations, their times.
 *
 * Rank 0 is the master, ranks 1 to K are the workers. In an iteration the master prepares, sends one
 * message to each worker in turn, and receives one from each in the same order; a worker receives,
 * computes in parallel regions of OpenMP, and returns its message. All calls block and are made
 * outside of parallel regions. Nothing else is sent, unless --output or --times ask for it at the end.
 */
#ifndef P3S_EXAMPLES_WORKER_H
#define P3S_EXAMPLES_WORKER_H

#include <limits.h>
#include <mpi.h>
#include <omp.h>

#include "../options.h"

enum { TAG_WORK = 1, TAG_RESULT = 2, TAG_OUTPUT = 3, TAG_TIMES = 4 };

struct job {
    const char *app;
    int rank, workers;
    int own;            /* of a worker: its number, from 0 on */
    long workload, iterations;
    long run;           /* printed with the times, tells runs apart */
    const char *output; /* file of the result, NULL: none */
    const char *times;  /* file of times, "-": standard output, NULL: none */
    double *log;        /* of a worker: FIELDS times of every iteration; of the master: MASTER */
};

enum { MU, REGION, RECV, SEND, FIELDS };          /* a worker's times of an iteration */
enum { WHOLE, PREPARE, OUT, BACK, MASTER_FIELDS }; /* the master's */

/* What a program does. Messages have a fixed number of doubles each. */
struct program {
    const char *app, *summary, *unit; /* unit: what the workload counts */
    long workload;                    /* default */
    long smallest;                    /* workload, for each worker: fewer cannot be shared out */
    long (*out_size)(const struct job *, int worker);
    long (*back_size)(const struct job *, int worker);
    void *(*start)(const struct job *);                                  /* on every rank */
    void (*prepare)(const struct job *, void *state);                    /* master, each iteration */
    void (*fill)(const struct job *, void *state, int worker, double *out);
    double (*compute)(const struct job *, void *state, const double *out, double *back);
    void (*merge)(const struct job *, void *state, int worker, const double *back);
    long (*part_size)(const struct job *, int worker);                    /* of the result */
    const double *(*part)(const struct job *, void *state);              /* a worker's, or the master's */
    int distributed; /* 1: the result is with the workers; 0: with the master, as part of worker 0 */
};

/* A number in [0, 1) that depends on its index only, not on the rank (splitmix, Steele et al. 2014). */
static inline double scatter(unsigned long long index)
{
    unsigned long long h = index + 1;
    h *= 0x9E3779B97F4A7C15ULL;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ULL;
    h ^= h >> 32;
    return (double)(h >> 11) / 9007199254740992.0;
}

/* First index and number of the workload's units that a worker has. */
static inline long first_of(const struct job *job, int worker)
{
    return block_start(job->workload, job->workers, worker);
}

static inline int count_of(const struct job *job, int worker)
{
    return block_size(job->workload, job->workers, worker);
}

static inline void master_iteration(const struct program *p, const struct job *job, void *state,
                                    double *out, double *back, double *times)
{
    double begin = MPI_Wtime(), sending = 0, receiving = 0;
    p->prepare(job, state);
    for (int w = 0; w < job->workers; w++) {
        p->fill(job, state, w, out);
        double start = MPI_Wtime();
        MPI_Send(out, (int)p->out_size(job, w), MPI_DOUBLE, w + 1, TAG_WORK, MPI_COMM_WORLD);
        sending += MPI_Wtime() - start;
    }
    for (int w = 0; w < job->workers; w++) {
        double start = MPI_Wtime();
        MPI_Recv(back, (int)p->back_size(job, w), MPI_DOUBLE, w + 1, TAG_RESULT, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        receiving += MPI_Wtime() - start;
        p->merge(job, state, w, back);
    }
    times[WHOLE] = MPI_Wtime() - begin;
    times[OUT] = sending;
    times[BACK] = receiving;
    times[PREPARE] = times[WHOLE] - sending - receiving;
}

static inline void worker_iteration(const struct program *p, const struct job *job, void *state,
                                    double *out, double *back, double *times)
{
    double begin = MPI_Wtime();
    MPI_Recv(out, (int)p->out_size(job, job->own), MPI_DOUBLE, 0, TAG_WORK, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    double start = MPI_Wtime();
    times[REGION] = p->compute(job, state, out, back);
    double end = MPI_Wtime();
    MPI_Send(back, (int)p->back_size(job, job->own), MPI_DOUBLE, 0, TAG_RESULT, MPI_COMM_WORLD);
    times[RECV] = start - begin;
    times[MU] = end - start;
    times[SEND] = MPI_Wtime() - end;
}

/* The result, part by part in the order of the workers, as doubles of this machine. */
static inline int write_result(const struct program *p, const struct job *job, void *state)
{
    int parts = p->distributed ? job->workers : 1, failed = 0;
    if (job->rank > 0) {
        if (p->distributed)
            MPI_Send(p->part(job, state), (int)p->part_size(job, job->own), MPI_DOUBLE, 0,
                     TAG_OUTPUT, MPI_COMM_WORLD);
        return 0;
    }
    FILE *file = fopen(job->output, "wb");
    for (int w = 0; w < parts; w++) {
        long size = p->part_size(job, w);
        double *memory = p->distributed ? zeros((size_t)size) : NULL;
        if (p->distributed)
            MPI_Recv(memory, (int)size, MPI_DOUBLE, w + 1, TAG_OUTPUT, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        const double *values = p->distributed ? memory : p->part(job, state);
        failed |= !file || fwrite(values, sizeof *values, (size_t)size, file) != (size_t)size;
        free(memory);
    }
    failed |= !file || fclose(file) != 0;
    if (failed)
        fprintf(stderr, "%s: %s cannot be written\n", p->app, job->output);
    return failed;
}

static inline void joined(FILE *file, const double *all, const struct job *job, long i, int field)
{
    for (int w = 0; w < job->workers; w++)
        fprintf(file, "%s%.9g", w ? ";" : ",", all[(w * job->iterations + i) * FIELDS + field]);
}

static inline const char *affinity(void)
{
    switch (omp_get_proc_bind()) {
    case omp_proc_bind_false: return "none";
    case omp_proc_bind_close: return "close";
    case omp_proc_bind_spread: return "far";
    default: return "bound";
    }
}

/* One line per iteration, as p3s.methods.baseline.iteration_table reads them. */
static inline int write_times(const struct job *job)
{
    int size = (int)job->iterations * FIELDS;
    if (job->rank > 0) {
        MPI_Send(job->log, size, MPI_DOUBLE, 0, TAG_TIMES, MPI_COMM_WORLD);
        return 0;
    }
    double *all = zeros((size_t)size * (size_t)job->workers);
    for (int w = 0; w < job->workers; w++)
        MPI_Recv(all + (size_t)w * (size_t)size, size, MPI_DOUBLE, w + 1, TAG_TIMES, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    char host[MPI_MAX_PROCESSOR_NAME];
    int length;
    MPI_Get_processor_name(host, &length);
    FILE *file = strcmp(job->times, "-") ? fopen(job->times, "w") : stdout;
    if (!file) {
        fprintf(stderr, "%s: %s cannot be written\n", job->app, job->times);
        free(all);
        return 1;
    }
    fprintf(file, "app,machine,run,iteration,W,processes,K,T,affinity,T_iter,mu_m,T_c,send_m,recv_m,"
                  "mu,region,recv,send\n");
    for (long i = 0; i < job->iterations; i++) {
        const double *own = job->log + i * MASTER_FIELDS;
        double sum = 0;
        for (int w = 0; w < job->workers; w++)
            sum += all[(w * job->iterations + i) * FIELDS + MU];
        fprintf(file, "%s,%s,%ld,%ld,%ld,%d,%d,%d,%s,%.9g,%.9g,%.9g,%.9g,%.9g", job->app, host,
                job->run, i, job->workload, job->workers + 1, job->workers, omp_get_max_threads(),
                affinity(), own[WHOLE], own[PREPARE], sum, own[OUT], own[BACK]);
        for (int field = 0; field < FIELDS; field++)
            joined(file, all, job, i, field);
        fputc('\n', file);
    }
    free(all);
    return file != stdout && fclose(file) != 0;
}

/* The largest message of a kind, in doubles. */
static inline long largest(const struct job *job, long (*size)(const struct job *, int))
{
    long found = 0;
    for (int w = 0; w < job->workers; w++)
        found = size(job, w) > found ? size(job, w) : found;
    return found;
}

static inline int iterate(const struct program *p, struct job *job)
{
    void *state = p->start(job);
    double *out = zeros((size_t)largest(job, p->out_size));
    double *back = zeros((size_t)largest(job, p->back_size));
    int code = 0;
    int fields = job->rank == 0 ? (int)MASTER_FIELDS : (int)FIELDS;
    job->log = zeros((size_t)(job->iterations * fields));
    for (long i = 0; i < job->iterations; i++) {
        if (job->rank == 0)
            master_iteration(p, job, state, out, back, job->log + i * fields);
        else
            worker_iteration(p, job, state, out, back, job->log + i * fields);
    }
    if (job->output)
        code |= write_result(p, job, state);
    if (job->times)
        code |= write_times(job);
    if (job->rank == 0 && !(job->times && !strcmp(job->times, "-")))
        printf("%s %ld %s, %d workers, %d threads each, %ld iterations\n", p->app, job->workload,
               p->unit, job->workers, omp_get_max_threads(), job->iterations);
    free(out);
    free(back);
    free(job->log);
    return code;
}

/* Take "--name TEXT" out of the arguments; NULL where it is not there. */
static inline const char *take_text(int *argc, char **argv, const char *name)
{
    for (int a = 1; a + 1 < *argc; a++)
        if (strncmp(argv[a], "--", 2) == 0 && strcmp(argv[a] + 2, name) == 0) {
            const char *text = argv[a + 1];
            *argc -= 2;
            memmove(argv + a, argv + a + 2, (size_t)(*argc - a) * sizeof *argv);
            return text;
        }
    return NULL;
}

static inline int run_program(const struct program *p, int argc, char **argv, struct job *job)
{
    job->output = take_text(&argc, argv, "output");
    job->times = take_text(&argc, argv, "times");
    const struct option options[] = {
        {"workload", &job->workload, 1, p->unit},
        {"iterations", &job->iterations, 1, "how many"},
        {"run", &job->run, 0, "printed with the times"},
    };
    int code = parse_options(argc, argv, job->rank, p->app, p->summary, options, 3);
    if (code != RUN)
        return code;
    if (job->workers < 1)
        return refuse(job->rank, p->app, "one rank cannot be master and worker; use 2 or more");
    if (job->workload < p->smallest * job->workers)
        return refuse(job->rank, p->app, "a workload of %ld is too little for %d workers; use %ld "
                      "or more", job->workload, job->workers, p->smallest * job->workers);
    if (largest(job, p->out_size) > INT_MAX || largest(job, p->back_size) > INT_MAX ||
        largest(job, p->part_size) > INT_MAX)
        return refuse(job->rank, p->app, "a workload of %ld makes messages that are too large; use "
                      "less", job->workload);
    return iterate(p, job);
}

static inline int master_and_workers(const struct program *p, int argc, char **argv)
{
    int rank, size, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct job job = {.app = p->app, .rank = rank, .workers = size - 1, .own = rank - 1,
                      .workload = p->workload, .iterations = 10};
    int code = run_program(p, argc, argv, &job);
    MPI_Finalize();
    return code;
}

#endif
