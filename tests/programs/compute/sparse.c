/* A sparse eigenvalue iteration: local products with a matrix in blocks of rows, dense algebra.
 *
 * Every rank owns ROWS/ranks rows with 12 entries each, in columns of its own block. In a turn of
 * the first loop it passes the border of its vector around a ring and multiplies INNER times; in
 * a turn of the second it takes the products of its BASIS vectors, sums them over all ranks by
 * recursive doubling (log2 of the ranks levels, each with work of its own) and corrects the
 * vectors. The number of ranks is a power of two.
 */
#include <math.h>
#include <mpi.h>

#include "../../../examples/options.h"

enum { ENTRIES = 12, BORDER = 64, BASIS = 12, PASSES = 6 };

struct rows {
    int count;
    double *value;     /* count x ENTRIES */
    int *column;
};

static void multiply(const struct rows *a, const double *x, double *y)
{
    for (int i = 0; i < a->count; i++) {
        const double *value = &a->value[(size_t)i * ENTRIES];
        const int *column = &a->column[(size_t)i * ENTRIES];
        double sum = x[i];
        for (int k = 0; k < ENTRIES; k++)
            sum += value[k] * x[column[k]];
        y[i] = sum;
    }
}

static double *power(const struct rows *a, double **x, double *y, long inner, int left, int right)
{
    MPI_Sendrecv(*x, BORDER, MPI_DOUBLE, left, 0, &(*x)[a->count], BORDER, MPI_DOUBLE, right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (long i = 0; i < inner; i++) {
        multiply(a, *x, y);
        double *other = *x;
        *x = y;
        y = other;
    }
    return y;
}

static void products(const double *basis, int count, double *gram)
{
    for (int i = 0; i < BASIS; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0.0;
            for (int k = 0; k < count; k++)
                sum += basis[(size_t)i * (size_t)count + (size_t)k]
                       * basis[(size_t)j * (size_t)count + (size_t)k];
            gram[i * BASIS + j] = gram[j * BASIS + i] = sum;
        }
}

/* Sum over all ranks in log2(size) levels; each smooths what came in, some passes. */
static void sum_levels(double *gram, double *other, int rank, int size)
{
    for (int stride = 1; stride < size; stride *= 2) {
        MPI_Sendrecv(gram, BASIS * BASIS, MPI_DOUBLE, rank ^ stride, 1, other, BASIS * BASIS,
                     MPI_DOUBLE, rank ^ stride, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < BASIS * BASIS; i++)
            gram[i] += other[i];
        for (int pass = 0; pass < 40; pass++)
            for (int i = 1; i < BASIS * BASIS; i++)
                gram[i] = 0.999 * gram[i] + 0.001 * gram[i - 1];
    }
}

static void correct(double *basis, int count, const double *gram)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 1; i < BASIS; i++) {
            double share = 1e-3 * gram[i * BASIS + i - 1] / (1.0 + fabs(gram[i * BASIS + i]));
            double *to = &basis[(size_t)i * (size_t)count];
            const double *from = to - count;
            for (int k = 0; k < count; k++)
                to[k] -= share * from[k];
        }
}

static int run(int argc, char **argv, int rank, int size)
{
    long total = 288000, steps = 4, turns = 6, inner = 24;
    const struct option options[] = {
        {"rows", &total, 1, "rows of the matrix"},
        {"steps", &steps, 1, "steps"},
        {"turns", &turns, 1, "turns of either loop per step"},
        {"inner", &inner, 1, "local products per turn"},
    };
    int code = parse_options(argc, argv, rank, "sparse", "Sparse matrix in blocks of rows.",
                             options, 4);
    if (code != RUN)
        return code;
    if (size & (size - 1))
        return refuse(rank, "sparse", "%d ranks are not a power of two", size);
    if (total / size < BORDER)
        return refuse(rank, "sparse", "%ld rows are too few for %d ranks", total, size);

    struct rows a = {.count = block_size(total, size, rank)};
    size_t entries = (size_t)a.count * ENTRIES, count = (size_t)a.count;
    a.value = zeros(entries);
    a.column = malloc(entries * sizeof *a.column);
    double *x = zeros(count + BORDER), *y = zeros(count + BORDER);
    double *basis = zeros(count * BASIS);
    double gram[BASIS * BASIS], other[BASIS * BASIS];
    if (!a.column)
        return refuse(rank, "sparse", "out of memory");
    unsigned long seed = (unsigned long)rank + 1;
    for (size_t i = 0; i < entries; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        a.value[i] = 1e-4 * (double)(seed >> 60);
        a.column[i] = (int)(((seed >> 32) * (count + BORDER)) >> 32);
    }
    for (size_t i = 0; i < count; i++)
        x[i] = 1e-3 * (double)(i % 13);
    for (size_t i = 0; i < count * BASIS; i++)
        basis[i] = 1e-3 * (double)(i % 7);

    for (long step = 0; step < steps; step++) {
        for (long turn = 0; turn < turns; turn++)
            y = power(&a, &x, y, inner, (rank + size - 1) % size, (rank + 1) % size);
        for (long turn = 0; turn < turns; turn++) {
            products(basis, a.count, gram);
            sum_levels(gram, other, rank, size);
            correct(basis, a.count, gram);
        }
        double length = 0.0, all;
        for (size_t i = 0; i < count; i++)
            length += x[i] * x[i];
        MPI_Allreduce(&length, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (size_t i = 0; i < count; i++)
            x[i] /= sqrt(1.0 + all);
    }
    if (rank == 0)
        printf("sparse: %.9e %.9e\n", x[0], gram[1]);
    /* The memory goes back at exit: that is the kernel's time, not the program's. */
    return 0;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int code = run(argc, argv, rank, size);
    MPI_Finalize();
    return code;
}
