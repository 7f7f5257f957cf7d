/* Heat and smoke on a 2-D grid: many sweeps over the own block between two exchanges.
 *
 * Every rank owns a block of NX x NY points. In a step it relaxes the temperature (SWEEPS local
 * sweeps per exchange of the border, an additive Schwarz method), carries the smoke with the
 * wind (SWEEPS upwind sweeps per exchange), and solves a coarse problem with one unknown per rank
 * that every rank solves for itself, so that its work grows with the number of ranks.
 */
#include <math.h>
#include <mpi.h>

#include "../../../examples/options.h"

struct block {
    int nx, ny;
    MPI_Comm comm;
    int north, south, west, east;
    MPI_Datatype column;
};

#define AT(x, y) ((size_t)(x) * (size_t)(b->ny + 2) + (size_t)(y))

static void exchange(const struct block *b, double *u)
{
    MPI_Sendrecv(&u[AT(b->nx, 1)], b->ny, MPI_DOUBLE, b->south, 0,
                 &u[AT(0, 1)], b->ny, MPI_DOUBLE, b->north, 0, b->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[AT(1, 1)], b->ny, MPI_DOUBLE, b->north, 1,
                 &u[AT(b->nx + 1, 1)], b->ny, MPI_DOUBLE, b->south, 1, b->comm,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[AT(1, b->ny)], 1, b->column, b->east, 2,
                 &u[AT(1, 0)], 1, b->column, b->west, 2, b->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[AT(1, 1)], 1, b->column, b->west, 3,
                 &u[AT(1, b->ny + 1)], 1, b->column, b->east, 3, b->comm, MPI_STATUS_IGNORE);
}

static void relax(const struct block *b, const double *u, double *next, const double *f)
{
    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++)
            next[AT(x, y)] = 0.25 * (u[AT(x - 1, y)] + u[AT(x + 1, y)] + u[AT(x, y - 1)]
                                     + u[AT(x, y + 1)] + f[AT(x, y)]);
}

static void carry(const struct block *b, const double *s, double *next, const double *wind,
                  const double *lift)
{
    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++) {
            size_t at = AT(x, y);
            next[at] = s[at] - wind[at] * (s[at] - s[AT(x - 1, y)])
                       - lift[at] * (s[at] - s[AT(x, y - 1)]);
        }
}

/* Tridiagonal system of one unknown per rank, solved by every rank, TIMES times. */
static double coarse(const double *right, double *work, int n, long times)
{
    double sum = 0.0;
    for (long t = 0; t < times; t++) {
        double *factor = work, *value = work + n;
        factor[0] = -0.5;
        value[0] = 0.5 * right[0] + 1e-3 * (double)t;
        for (int i = 1; i < n; i++) {
            double pivot = 1.0 / (2.0 + factor[i - 1]);
            factor[i] = -pivot;
            value[i] = (right[i] + value[i - 1]) * pivot;
        }
        for (int i = n - 2; i >= 0; i--)
            value[i] -= factor[i] * value[i + 1];
        sum += value[0];
    }
    return sum;
}

static double mean(const struct block *b, const double *u)
{
    double sum = 0.0;
    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++)
            sum += u[AT(x, y)];
    return sum / ((double)b->nx * b->ny);
}

static void swap(double **a, double **b)
{
    double *other = *a;
    *a = *b;
    *b = other;
}

static void solve(const struct block *b, int rank, int size, long steps, long turns, long sweeps,
                  long solves)
{
    size_t points = (size_t)(b->nx + 2) * (size_t)(b->ny + 2);
    double *u = zeros(points), *next = zeros(points), *f = zeros(points);
    double *smoke = zeros(points), *drift = zeros(points);
    double *wind = zeros(points), *lift = zeros(points);
    double *means = zeros((size_t)size), *work = zeros(2 * (size_t)size), level = 0.0;

    for (int x = 0; x <= b->nx + 1; x++)
        for (int y = 0; y <= b->ny + 1; y++) {
            size_t at = AT(x, y);
            u[at] = next[at] = 1.0 + 0.01 * (double)((x * 7 + y * 3) % 11);
            f[at] = 0.001 * (double)((x + y) % 5);
            smoke[at] = drift[at] = (double)((x * 5 + y) % 17);
            wind[at] = 0.1 + 0.01 * (double)(y % 9);
            lift[at] = 0.1 + 0.01 * (double)(x % 9);
        }

    for (long step = 0; step < steps; step++) {
        for (long turn = 0; turn < turns; turn++) {
            exchange(b, u);
            for (long sweep = 0; sweep < sweeps; sweep++) {
                relax(b, u, next, f);
                swap(&u, &next);
            }
        }
        for (long turn = 0; turn < turns; turn++) {
            exchange(b, smoke);
            for (long sweep = 0; sweep < sweeps; sweep++) {
                carry(b, smoke, drift, wind, lift);
                swap(&smoke, &drift);
            }
        }
        double own = mean(b, u) + mean(b, smoke);
        MPI_Allgather(&own, 1, MPI_DOUBLE, means, 1, MPI_DOUBLE, b->comm);
        level += coarse(means, work, size, solves);
    }

    double total;
    MPI_Allreduce(&level, &total, 1, MPI_DOUBLE, MPI_SUM, b->comm);
    if (rank == 0)
        printf("heat: level %.9e\n", total / size);
    /* The memory goes back at exit: that is the kernel's time, not the program's. */
}

static int run(int argc, char **argv, int rank, int size)
{
    long nx = 1200, ny = 1120, steps = 4, turns = 6, sweeps = 24, solves = 300;
    const struct option options[] = {
        {"nx", &nx, 1, "points in the first dimension"},
        {"ny", &ny, 1, "points in the second dimension"},
        {"steps", &steps, 1, "steps"},
        {"turns", &turns, 1, "exchanges per step, of either field"},
        {"sweeps", &sweeps, 1, "local sweeps after an exchange"},
        {"solves", &solves, 1, "coarse solutions per step"},
    };
    int code = parse_options(argc, argv, rank, "heat", "Heat and smoke in blocks of a 2-D grid.",
                             options, 6);
    if (code != RUN)
        return code;

    int dims[2] = {0, 0}, periods[2] = {1, 1}, coords[2];
    struct block b;
    MPI_Dims_create(size, 2, dims);
    if (dims[0] > nx || dims[1] > ny)
        return refuse(rank, "heat", "%ld x %ld points do not fill %d x %d ranks", nx, ny, dims[0],
                      dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &b.comm);
    MPI_Cart_coords(b.comm, rank, 2, coords);
    MPI_Cart_shift(b.comm, 0, 1, &b.north, &b.south);
    MPI_Cart_shift(b.comm, 1, 1, &b.west, &b.east);
    b.nx = block_size(nx, dims[0], coords[0]);
    b.ny = block_size(ny, dims[1], coords[1]);
    MPI_Type_vector(b.nx, 1, b.ny + 2, MPI_DOUBLE, &b.column);
    MPI_Type_commit(&b.column);
    solve(&b, rank, size, steps, turns, sweeps, solves);
    MPI_Type_free(&b.column);
    MPI_Comm_free(&b.comm);
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
