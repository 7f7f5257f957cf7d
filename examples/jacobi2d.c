/* 2-D Poisson equation by Jacobi iteration on a bordered Cartesian process grid.
 *
 * Every rank owns a block of the NX x NY interior points (any size, the remainder goes to the
 * first ranks), exchanges one layer of points with up to four neighbours, and from time to time
 * takes part in an Allreduce of the residual. With --newton it is the Bratu problem on the unit
 * square: the source is e^u, and every point is solved for by so many Newton steps.
 */
#include <math.h>
#include <mpi.h>

#include "options.h"

struct block {
    int nx, ny;        /* interior points of this rank */
    long x0, y0;       /* global index of the first one */
    MPI_Comm comm;
    int north, south, west, east; /* neighbours, MPI_PROC_NULL at the border */
    MPI_Datatype column;
};

#define AT(x, y) ((size_t)(x) * (size_t)(b->ny + 2) + (size_t)(y))

static void exchange(const struct block *b, double *u)
{
    MPI_Request requests[8];
    int n = 0;

    if (b->north != MPI_PROC_NULL)
        MPI_Irecv(&u[AT(0, 1)], b->ny, MPI_DOUBLE, b->north, 1, b->comm, &requests[n++]);
    if (b->south != MPI_PROC_NULL)
        MPI_Irecv(&u[AT(b->nx + 1, 1)], b->ny, MPI_DOUBLE, b->south, 0, b->comm, &requests[n++]);
    if (b->west != MPI_PROC_NULL)
        MPI_Irecv(&u[AT(1, 0)], 1, b->column, b->west, 3, b->comm, &requests[n++]);
    if (b->east != MPI_PROC_NULL)
        MPI_Irecv(&u[AT(1, b->ny + 1)], 1, b->column, b->east, 2, b->comm, &requests[n++]);

    if (b->north != MPI_PROC_NULL)
        MPI_Isend(&u[AT(1, 1)], b->ny, MPI_DOUBLE, b->north, 0, b->comm, &requests[n++]);
    if (b->south != MPI_PROC_NULL)
        MPI_Isend(&u[AT(b->nx, 1)], b->ny, MPI_DOUBLE, b->south, 1, b->comm, &requests[n++]);
    if (b->west != MPI_PROC_NULL)
        MPI_Isend(&u[AT(1, 1)], 1, b->column, b->west, 2, b->comm, &requests[n++]);
    if (b->east != MPI_PROC_NULL)
        MPI_Isend(&u[AT(1, b->ny)], 1, b->column, b->east, 3, b->comm, &requests[n++]);

    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

/* One Jacobi step from u to next; returns the sum of the squared changes. */
static double relax(const struct block *b, const double *u, double *next, const double *f)
{
    double change = 0.0;
    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++) {
            double value = 0.25 * (u[AT(x - 1, y)] + u[AT(x + 1, y)] + u[AT(x, y - 1)]
                                   + u[AT(x, y + 1)] + f[AT(x, y)]);
            double difference = value - u[AT(x, y)];
            change += difference * difference;
            next[AT(x, y)] = value;
        }
    return change;
}

/* The same for the Bratu problem: 4 u = (neighbours) + strength e^u at every point. */
static double relax_bratu(const struct block *b, const double *u, double *next, double strength,
                          long newton)
{
    double change = 0.0;
    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++) {
            double around = u[AT(x - 1, y)] + u[AT(x + 1, y)] + u[AT(x, y - 1)] + u[AT(x, y + 1)];
            double value = u[AT(x, y)];
            for (long step = 0; step < newton; step++) {
                double source = strength * exp(value);
                value -= (4.0 * value - around - source) / (4.0 - source);
            }
            double difference = value - u[AT(x, y)];
            change += difference * difference;
            next[AT(x, y)] = value;
        }
    return change;
}

static double norm(const struct block *b, const double *u)
{
    double local = 0.0, total;
    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++)
            local += u[AT(x, y)] * u[AT(x, y)];
    MPI_Allreduce(&local, &total, 1, MPI_DOUBLE, MPI_SUM, b->comm);
    return sqrt(total);
}

static void solve(const struct block *b, long nx, long ny, long iterations, long check, long newton,
                  int rank)
{
    size_t points = (size_t)(b->nx + 2) * (size_t)(b->ny + 2);
    double *u = zeros(points), *next = zeros(points), *f = zeros(points);
    double residual = 0.0, strength = 1.0 / ((double)(nx + 1) * (double)(ny + 1));

    for (int x = 1; x <= b->nx; x++)
        for (int y = 1; y <= b->ny; y++)
            f[AT(x, y)] = sin(M_PI * (double)(b->x0 + x) / (double)(nx + 1))
                          * sin(2.0 * M_PI * (double)(b->y0 + y) / (double)(ny + 1));

    for (long i = 1; i <= iterations; i++) {
        exchange(b, u);
        double change = newton ? relax_bratu(b, u, next, strength, newton)
                               : relax(b, u, next, f);
        if (i % check == 0)
            MPI_Allreduce(&change, &residual, 1, MPI_DOUBLE, MPI_SUM, b->comm);
        double *other = u;
        u = next;
        next = other;
    }

    double length = norm(b, u);
    if (rank == 0)
        printf("jacobi2d %ld x %ld, %ld iterations: residual %.9e norm %.9e\n", nx, ny, iterations,
               sqrt(residual), length);
    free(u);
    free(next);
    free(f);
}

static int run(int argc, char **argv, int rank, int size)
{
    long nx = 201, ny = 187, iterations = 100, check = 1, newton = 0;
    const struct option options[] = {
        {"nx", &nx, 1, "interior points in the first dimension"},
        {"ny", &ny, 1, "interior points in the second dimension"},
        {"iterations", &iterations, 1, "Jacobi steps"},
        {"check", &check, 1, "steps between two Allreduce of the residual"},
        {"newton", &newton, 0, "Newton steps per point, of the Bratu problem"},
    };
    int code = parse_options(argc, argv, rank, "jacobi2d",
                             "2-D Poisson equation: halo exchange on a bordered process grid.",
                             options, 5);
    if (code != RUN)
        return code;

    int dims[2] = {0, 0}, periods[2] = {0, 0}, coords[2];
    struct block b;
    MPI_Dims_create(size, 2, dims);
    if (dims[0] > nx || dims[1] > ny)
        return refuse(rank, "jacobi2d", "%ld x %ld points do not fill %d x %d ranks; use fewer "
                      "ranks or more points", nx, ny, dims[0], dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &b.comm);
    MPI_Cart_coords(b.comm, rank, 2, coords);
    MPI_Cart_shift(b.comm, 0, 1, &b.north, &b.south);
    MPI_Cart_shift(b.comm, 1, 1, &b.west, &b.east);
    b.nx = block_size(nx, dims[0], coords[0]);
    b.ny = block_size(ny, dims[1], coords[1]);
    b.x0 = block_start(nx, dims[0], coords[0]);
    b.y0 = block_start(ny, dims[1], coords[1]);
    MPI_Type_vector(b.nx, 1, b.ny + 2, MPI_DOUBLE, &b.column);
    MPI_Type_commit(&b.column);

    solve(&b, nx, ny, iterations, check, newton, rank);

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
