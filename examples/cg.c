/* Smallest eigenvalue of a random sparse matrix by inverse iteration with conjugate gradients.
 *
 * The process grid has a power of two of ranks, in rows x columns with columns = rows or 2 rows.
 * Rank (i, j) holds the part of the matrix in row block i and column block j. Vectors live in
 * column blocks, the same one in every row of the grid. A product A p needs a sum over each
 * process row (XOR exchange) and brings row blocks back to column blocks (exchange with the
 * transpose partner); a dot product is an XOR exchange of one number inside a process row.
 */
#include <math.h>
#include <mpi.h>

#include "options.h"

struct grid {
    int rank, rows, cols, row, col;
    int partner;                 /* transpose partner */
    long n;                      /* order of the matrix */
    long row_first, row_end;     /* row block of this rank */
    long col_first, col_end;     /* column block of this rank */
    long give_first, give_end;   /* the part of the row block that the partner needs */
};

struct matrix { /* compressed rows of the local part; columns count from the block's first */
    int rows;
    long *start;
    int *column;
    double *value;
};

/* The entry in row i and column j, i != j: negative for about `nonzeros` places of a row, else 0. */
static double entry(long i, long j, long n, long nonzeros)
{
    unsigned long long low = (unsigned long long)(i < j ? i : j);
    unsigned long long high = (unsigned long long)(i < j ? j : i);
    unsigned long long h = low * 0x9E3779B97F4A7C15ULL + high * 0xC2B2AE3D27D4EB4FULL + 1;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    h ^= h >> 32;
    h *= 0x94D049BB133111EBULL;
    h ^= h >> 29;
    if ((long)(h % (unsigned long long)n) >= nonzeros)
        return 0.0;
    return -0.1 - (double)(h >> 40) / 16777216.0;
}

/* Add up a vector over the ranks of the own process row: one XOR partner per stage. */
static void row_sum(const struct grid *g, double *sum, double *scratch, int count)
{
    for (int bit = 1; bit < g->cols; bit *= 2) {
        int partner = g->row * g->cols + (g->col ^ bit);
        MPI_Request request;
        MPI_Irecv(scratch, count, MPI_DOUBLE, partner, 1, MPI_COMM_WORLD, &request);
        MPI_Send(sum, count, MPI_DOUBLE, partner, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            sum[i] += scratch[i];
    }
}

static double dot(const struct grid *g, const double *a, const double *b)
{
    double sum = 0.0, scratch;
    for (long i = 0; i < g->col_end - g->col_first; i++)
        sum += a[i] * b[i];
    row_sum(g, &sum, &scratch, 1);
    return sum;
}

/* q = A p; w and scratch hold a row block each. */
static void multiply(const struct grid *g, const struct matrix *a, const double *p, double *q,
                     double *w, double *scratch)
{
    for (int i = 0; i < a->rows; i++) {
        double sum = 0.0;
        for (long k = a->start[i]; k < a->start[i + 1]; k++)
            sum += a->value[k] * p[a->column[k]];
        w[i] = sum;
    }
    row_sum(g, w, scratch, a->rows);

    const double *give = w + (g->give_first - g->row_first);
    int give_count = (int)(g->give_end - g->give_first);
    int take_count = (int)(g->col_end - g->col_first);
    if (g->partner == g->rank) {
        memcpy(q, give, sizeof *q * (size_t)take_count);
    } else {
        MPI_Request request;
        MPI_Irecv(q, take_count, MPI_DOUBLE, g->partner, 2, MPI_COMM_WORLD, &request);
        MPI_Send(give, give_count, MPI_DOUBLE, g->partner, 2, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Boundaries floor(c n / p): row blocks are unions of column blocks since rows divides cols. */
static long boundary(long n, int p, int c)
{
    return n * c / p;
}

static void set_up_grid(struct grid *g, int rank, int size, long n)
{
    g->rank = rank;
    g->n = n;
    for (g->rows = 1; g->rows * g->rows * 4 <= size; g->rows *= 2)
        ;
    g->cols = size / g->rows;
    g->row = rank / g->cols;
    g->col = rank % g->cols;
    int ratio = g->cols / g->rows; /* 1 or 2 */
    int give = ratio * g->row + g->col % ratio;
    g->partner = g->col / ratio * g->cols + give;
    g->row_first = boundary(n, g->rows, g->row);
    g->row_end = boundary(n, g->rows, g->row + 1);
    g->col_first = boundary(n, g->cols, g->col);
    g->col_end = boundary(n, g->cols, g->col + 1);
    g->give_first = boundary(n, g->cols, give);
    g->give_end = boundary(n, g->cols, give + 1);
}

/* The diagonal is larger than the row's absolute sum, so the symmetric matrix is positive definite. */
static struct matrix make_matrix(const struct grid *g, long nonzeros)
{
    struct matrix a;
    a.rows = (int)(g->row_end - g->row_first);
    a.start = malloc(sizeof *a.start * ((size_t)a.rows + 1));
    double *total = zeros((size_t)a.rows), *scratch = zeros((size_t)a.rows);
    long used = 0, room = 0;
    a.column = NULL;
    a.value = NULL;

    for (int i = 0; i < a.rows; i++) {
        a.start[i] = used;
        if (used + g->col_end - g->col_first > room) { /* room for a full row */
            room = 2 * (used + g->col_end - g->col_first);
            a.column = realloc(a.column, sizeof *a.column * (size_t)room);
            a.value = realloc(a.value, sizeof *a.value * (size_t)room);
            if (!a.column || !a.value) {
                fprintf(stderr, "out of memory: %ld matrix entries\n", room);
                exit(1);
            }
        }
        for (long j = g->col_first; j < g->col_end; j++) {
            int diagonal = j == g->row_first + i;
            double value = diagonal ? 0.0 : entry(g->row_first + i, j, g->n, nonzeros);
            if (value == 0.0 && !diagonal)
                continue;
            a.column[used] = (int)(j - g->col_first);
            a.value[used++] = value;
            total[i] += fabs(value);
        }
    }
    a.start[a.rows] = used;

    row_sum(g, total, scratch, a.rows);
    for (int i = 0; i < a.rows; i++)
        for (long k = a.start[i]; k < a.start[i + 1]; k++)
            if (g->col_first + a.column[k] == g->row_first + i)
                a.value[k] = 0.1 + (double)((g->row_first + i) % 11) / 11.0 + total[i];
    free(total);
    free(scratch);
    return a;
}

struct vectors { double *x, *z, *r, *p, *q, *w, *scratch; };

/* Solve A z = x with a fixed number of CG steps; returns the norm of x - A z. */
static double conjugate_gradient(const struct grid *g, const struct matrix *a, struct vectors *v,
                                 long steps)
{
    long n = g->col_end - g->col_first;
    for (long i = 0; i < n; i++) {
        v->z[i] = 0.0;
        v->r[i] = v->p[i] = v->x[i];
    }
    double rho = dot(g, v->r, v->r);
    for (long step = 0; step < steps; step++) {
        multiply(g, a, v->p, v->q, v->w, v->scratch);
        double curvature = dot(g, v->p, v->q);
        /* All numbers vanish when the residual has become exactly 0: stay there. */
        double alpha = curvature > 0.0 ? rho / curvature : 0.0;
        for (long i = 0; i < n; i++) {
            v->z[i] += alpha * v->p[i];
            v->r[i] -= alpha * v->q[i];
        }
        double previous = rho;
        rho = dot(g, v->r, v->r);
        double beta = previous > 0.0 ? rho / previous : 0.0;
        for (long i = 0; i < n; i++)
            v->p[i] = v->r[i] + beta * v->p[i];
    }
    multiply(g, a, v->z, v->q, v->w, v->scratch);
    for (long i = 0; i < n; i++)
        v->r[i] = v->x[i] - v->q[i];
    return sqrt(dot(g, v->r, v->r));
}

static int run(int argc, char **argv, int rank, int size)
{
    long n = 1401, nonzeros = 12, iterations = 5, steps = 25;
    const struct option options[] = {
        {"n", &n, 1, "order of the matrix"},
        {"nonzeros", &nonzeros, 1, "entries of a row, on average"},
        {"iterations", &iterations, 1, "steps of the inverse iteration"},
        {"inner", &steps, 1, "conjugate gradient steps in each of them"},
    };
    int code = parse_options(argc, argv, rank, "cg",
                             "Conjugate gradients on a 2-D process grid, 2^k ranks.", options, 4);
    if (code != RUN)
        return code;
    if ((size & (size - 1)) != 0)
        return refuse(rank, "cg", "%d ranks are not a power of two; use 1, 2, 4, 8, 16, ...", size);
    struct grid g;
    set_up_grid(&g, rank, size, n);
    if (n < g.cols)
        return refuse(rank, "cg", "order %ld is smaller than %d process columns; use fewer ranks "
                      "or a larger matrix", n, g.cols);

    struct matrix a = make_matrix(&g, nonzeros);
    size_t cols = (size_t)(g.col_end - g.col_first), rows = (size_t)a.rows;
    struct vectors v = {zeros(cols), zeros(cols), zeros(cols), zeros(cols),
                        zeros(cols), zeros(rows), zeros(rows)};
    for (size_t i = 0; i < cols; i++)
        v.x[i] = 1.0 + (double)((g.col_first + (long)i) % 7) / 7.0;

    double residual = 0.0, zeta = 0.0;
    for (long i = 0; i < iterations; i++) {
        residual = conjugate_gradient(&g, &a, &v, steps);
        double xz = dot(&g, v.x, v.z);
        double zz = dot(&g, v.z, v.z);
        zeta = xz / zz; /* tends to the smallest eigenvalue */
        for (size_t k = 0; k < cols; k++)
            v.x[k] = v.z[k] / sqrt(zz);
    }
    if (rank == 0) /* the residual is rounding noise once it is small: one digit will do */
        printf("cg n %ld, %ld x %ld iterations: eigenvalue %.9e converged %s\n", n, iterations,
               steps, zeta, residual < 1e-6 ? "yes" : "no");

    double *blocks[] = {v.x, v.z, v.r, v.p, v.q, v.w, v.scratch, a.value};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    free(a.start);
    free(a.column);
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
