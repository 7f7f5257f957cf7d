/* Matrix product: every iteration multiplies a matrix by another, A = A B. The master sends its rows
 * of A and all of B, transposed, to every worker; a worker returns its rows of the product. */
#include "worker.h"

struct matrices {
    double *a, *b; /* b: transposed */
};

static long out_size(const struct job *job, int worker)
{
    return job->workload * (count_of(job, worker) + job->workload);
}

static long back_size(const struct job *job, int worker)
{
    return job->workload * count_of(job, worker);
}

static void *start(const struct job *job)
{
    static struct matrices m;
    if (job->rank > 0)
        return &m;
    long n = job->workload;
    m.a = zeros((size_t)(n * n));
    m.b = zeros((size_t)(n * n));
    for (long i = 0; i < n * n; i++)
        m.a[i] = scatter((unsigned long long)i);
    return &m;
}

/* B is made and transposed in each iteration; its rows add up to about 1, so A stays as large. */
static void prepare(const struct job *job, void *state)
{
    struct matrices *m = state;
    long n = job->workload;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++)
            m->b[j * n + i] = 2.0 * scatter((unsigned long long)(n * n + i * n + j)) / (double)n;
}

static void fill(const struct job *job, void *state, int worker, double *out)
{
    struct matrices *m = state;
    size_t n = (size_t)job->workload, rows = (size_t)count_of(job, worker);
    memcpy(out, m->a + (size_t)first_of(job, worker) * n, sizeof *out * rows * n);
    memcpy(out + rows * n, m->b, sizeof *out * n * n);
}

static double compute(const struct job *job, void *state, const double *out, double *back)
{
    long n = job->workload;
    int rows = count_of(job, job->own);
    const double *b = out + (size_t)rows * (size_t)n;
    (void)state;
    double begin = MPI_Wtime();
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++)
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long k = 0; k < n; k++)
                sum += out[i * n + k] * b[j * n + k];
            back[i * n + j] = sum;
        }
    return MPI_Wtime() - begin;
}

static void merge(const struct job *job, void *state, int worker, const double *back)
{
    struct matrices *m = state;
    memcpy(m->a + first_of(job, worker) * job->workload, back,
           sizeof *back * (size_t)back_size(job, worker));
}

static long part_size(const struct job *job, int worker)
{
    (void)worker;
    return job->workload * job->workload;
}

static const double *part(const struct job *job, void *state)
{
    (void)job;
    return ((struct matrices *)state)->a;
}

int main(int argc, char **argv)
{
    const struct program program = {
        .app = "matmul", .summary = "Products of square matrices, one master, K workers.",
        .unit = "rows", .workload = 200, .smallest = 1, .out_size = out_size,
        .back_size = back_size, .start = start, .prepare = prepare, .fill = fill,
        .compute = compute, .merge = merge, .part_size = part_size, .part = part};
    return master_and_workers(&program, argc, argv);
}
