/* Clusters of objects by k-means. Every worker makes its own objects; the master sends the centres,
 * a worker returns the sum and the number of its objects near each; the master makes new centres. */
#include "worker.h"

enum { ATTRIBUTES = 125, CLUSTERS = 10, CENTRES = ATTRIBUTES * CLUSTERS, SUMS = CENTRES + CLUSTERS };

struct clusters {
    double *objects; /* of a worker */
    double *centres; /* of the master */
    double *sums;    /* of the master: those of all workers; of a worker: SUMS of each thread */
};

static long centres_size(const struct job *job, int worker)
{
    (void)job;
    (void)worker;
    return CENTRES;
}

static long sums_size(const struct job *job, int worker)
{
    (void)job;
    (void)worker;
    return SUMS;
}

static double attribute(long object, int a)
{
    return scatter((unsigned long long)object * ATTRIBUTES + (unsigned long long)a);
}

static void *start(const struct job *job)
{
    static struct clusters c;
    if (job->rank == 0) {
        c.centres = zeros(CENTRES);
        c.sums = zeros(SUMS);
        for (int i = 0; i < CENTRES; i++)
            c.centres[i] = attribute(i / ATTRIBUTES, i % ATTRIBUTES);
        return &c;
    }
    long own = count_of(job, job->own), first = first_of(job, job->own);
    c.objects = zeros((size_t)(own * ATTRIBUTES));
    c.sums = zeros((size_t)omp_get_max_threads() * SUMS);
#pragma omp parallel for schedule(static)
    for (long i = 0; i < own; i++)
        for (int a = 0; a < ATTRIBUTES; a++)
            c.objects[i * ATTRIBUTES + a] = attribute(first + i, a);
    return &c;
}

static void prepare(const struct job *job, void *state)
{
    (void)job;
    memset(((struct clusters *)state)->sums, 0, sizeof(double) * SUMS);
}

static void fill(const struct job *job, void *state, int worker, double *out)
{
    (void)job;
    (void)worker;
    memcpy(out, ((struct clusters *)state)->centres, sizeof *out * CENTRES);
}

static int nearest(const double *object, const double *centres)
{
    int best = 0;
    double least = 0;
    for (int c = 0; c < CLUSTERS; c++) {
        double square = 0;
        for (int a = 0; a < ATTRIBUTES; a++) {
            double away = object[a] - centres[c * ATTRIBUTES + a];
            square += away * away;
        }
        if (c == 0 || square < least) {
            least = square;
            best = c;
        }
    }
    return best;
}

static double compute(const struct job *job, void *state, const double *centres, double *back)
{
    struct clusters *c = state;
    long own = count_of(job, job->own);
    int threads = omp_get_max_threads();
    double begin = MPI_Wtime();
    memset(c->sums, 0, sizeof(double) * SUMS * (size_t)threads);
#pragma omp parallel num_threads(threads)
    {
        double *sums = c->sums + (size_t)omp_get_thread_num() * SUMS;
#pragma omp for schedule(static)
        for (long i = 0; i < own; i++) {
            const double *object = c->objects + i * ATTRIBUTES;
            int at = nearest(object, centres);
            for (int a = 0; a < ATTRIBUTES; a++)
                sums[at * ATTRIBUTES + a] += object[a];
            sums[CENTRES + at] += 1;
        }
    }
    memset(back, 0, sizeof *back * SUMS);
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < SUMS; i++)
            back[i] += c->sums[(size_t)t * SUMS + (size_t)i];
    return MPI_Wtime() - begin;
}

/* With the last worker's sums come the new centres; one without objects stays where it was. */
static void merge(const struct job *job, void *state, int worker, const double *back)
{
    struct clusters *c = state;
    for (int i = 0; i < SUMS; i++)
        c->sums[i] += back[i];
    if (worker + 1 < job->workers)
        return;
    for (int i = 0; i < CENTRES; i++) {
        double count = c->sums[CENTRES + i / ATTRIBUTES];
        if (count > 0)
            c->centres[i] = c->sums[i] / count;
    }
}

static const double *part(const struct job *job, void *state)
{
    (void)job;
    return ((struct clusters *)state)->centres;
}

int main(int argc, char **argv)
{
    const struct program program = {
        .app = "kmeans", .summary = "Clusters of objects, one master, K workers.",
        .unit = "objects", .workload = 2000, .smallest = 1, .out_size = centres_size,
        .back_size = sums_size, .start = start, .prepare = prepare, .fill = fill,
        .compute = compute, .merge = merge, .part_size = centres_size, .part = part};
    return master_and_workers(&program, argc, argv);
}
