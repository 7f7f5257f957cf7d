/* Pipelined sweeps over a 3-D box that is distributed in two dimensions.
 *
 * A cell needs its neighbours in the west, the north and below. So a rank receives a block of
 * planes from the west and the north, computes, sends to the east and the south, and goes on
 * with the next block of planes: a wave that starts in one corner of the process grid. Every
 * other sweep starts in the opposite corner. Plain ranks in a row-major grid, no Cartesian
 * communicator; the remainder of the cells goes to the first ranks.
 */
#include <math.h>
#include <mpi.h>

#include "options.h"

enum { FROM_WEST = 1, FROM_NORTH = 2 };

struct part {
    int rank, rows, cols, row, col;
    int nx, ny;          /* own cells: nx along the rows of ranks, ny along the columns */
    long x0, y0;
    int nz, planes;      /* all cells in the third dimension; planes per message */
    double *u;           /* nx * ny * nz */
    double *west, *north; /* faces that come in, of one block of planes */
    double *east, *south; /* faces that go out */
};

static double source(long x, long y, long z)
{
    return (double)((x * 13 + y * 7 + z * 3) % 29) / 29.0;
}

/* Cells of planes [k0, k1), walking away from the corner where the wave came from. */
static void compute(const struct part *p, int k0, int k1, int direction)
{
    int depth = k1 - k0;
    for (int i = 0; i < p->nx; i++) {
        int x = direction > 0 ? i : p->nx - 1 - i;
        for (int j = 0; j < p->ny; j++) {
            int y = direction > 0 ? j : p->ny - 1 - j;
            for (int k = k0; k < k1; k++) {
                double *cell = &p->u[((size_t)x * (size_t)p->ny + (size_t)y) * (size_t)p->nz
                                     + (size_t)k];
                long row = (long)p->ny * p->nz * direction, col = (long)p->nz * direction;
                double north = i > 0 ? cell[-row] : p->north[(size_t)y * (size_t)depth
                                                             + (size_t)(k - k0)];
                double west = j > 0 ? cell[-col] : p->west[(size_t)x * (size_t)depth
                                                           + (size_t)(k - k0)];
                double below = k > 0 ? cell[-1] : 0.0;
                *cell = 0.25 * (*cell + north + west + below)
                        + source(p->x0 + x, p->y0 + y, k);
            }
        }
    }
    int last_x = direction > 0 ? p->nx - 1 : 0, last_y = direction > 0 ? p->ny - 1 : 0;
    for (int y = 0; y < p->ny; y++)
        memcpy(&p->south[(size_t)y * (size_t)depth],
               &p->u[((size_t)last_x * (size_t)p->ny + (size_t)y) * (size_t)p->nz + (size_t)k0],
               sizeof(double) * (size_t)depth);
    for (int x = 0; x < p->nx; x++)
        memcpy(&p->east[(size_t)x * (size_t)depth],
               &p->u[((size_t)x * (size_t)p->ny + (size_t)last_y) * (size_t)p->nz + (size_t)k0],
               sizeof(double) * (size_t)depth);
}

/* One wave; "west" and "north" are where it comes from, so they turn round with direction -1. */
static void sweep(const struct part *p, int direction)
{
    int has_west = direction > 0 ? p->col > 0 : p->col < p->cols - 1;
    int has_east = direction > 0 ? p->col < p->cols - 1 : p->col > 0;
    int has_north = direction > 0 ? p->row > 0 : p->row < p->rows - 1;
    int has_south = direction > 0 ? p->row < p->rows - 1 : p->row > 0;

    for (int k0 = 0; k0 < p->nz; k0 += p->planes) {
        int k1 = k0 + p->planes < p->nz ? k0 + p->planes : p->nz;
        int depth = k1 - k0;
        if (has_west)
            MPI_Recv(p->west, p->nx * depth, MPI_DOUBLE, p->rank - direction, FROM_WEST,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            memset(p->west, 0, sizeof(double) * (size_t)(p->nx * depth));
        if (has_north)
            MPI_Recv(p->north, p->ny * depth, MPI_DOUBLE, p->rank - direction * p->cols,
                     FROM_NORTH, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            memset(p->north, 0, sizeof(double) * (size_t)(p->ny * depth));
        compute(p, k0, k1, direction);
        if (has_east)
            MPI_Send(p->east, p->nx * depth, MPI_DOUBLE, p->rank + direction, FROM_WEST,
                     MPI_COMM_WORLD);
        if (has_south)
            MPI_Send(p->south, p->ny * depth, MPI_DOUBLE, p->rank + direction * p->cols,
                     FROM_NORTH, MPI_COMM_WORLD);
    }
}

static double sum_of_squares(const struct part *p)
{
    double local = 0.0, total;
    size_t cells = (size_t)p->nx * (size_t)p->ny * (size_t)p->nz;
    for (size_t i = 0; i < cells; i++)
        local += p->u[i] * p->u[i];
    MPI_Allreduce(&local, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

static int run(int argc, char **argv, int rank, int size)
{
    long nx = 61, ny = 59, nz = 40, planes = 4, iterations = 5, sweeps = 2;
    const struct option options[] = {
        {"nx", &nx, 1, "cells in the first, distributed dimension"},
        {"ny", &ny, 1, "cells in the second, distributed dimension"},
        {"nz", &nz, 1, "cells in the third dimension"},
        {"planes", &planes, 1, "planes of the third dimension in one message"},
        {"sweeps", &sweeps, 1, "pairs of opposite sweeps in an iteration"},
        {"iterations", &iterations, 1, "iterations, each ending in an Allreduce"},
    };
    int code = parse_options(argc, argv, rank, "wavefront",
                             "Pipelined sweeps from two opposite corners of a process grid.",
                             options, 6);
    if (code != RUN)
        return code;

    int dims[2] = {0, 0};
    MPI_Dims_create(size, 2, dims);
    if (dims[0] > nx || dims[1] > ny)
        return refuse(rank, "wavefront", "%ld x %ld cells do not fill %d x %d ranks; use fewer "
                      "ranks or more cells", nx, ny, dims[0], dims[1]);
    struct part p = {.rank = rank, .rows = dims[0], .cols = dims[1], .nz = (int)nz};
    p.row = rank / p.cols;
    p.col = rank % p.cols;
    p.nx = block_size(nx, p.rows, p.row);
    p.ny = block_size(ny, p.cols, p.col);
    p.x0 = block_start(nx, p.rows, p.row);
    p.y0 = block_start(ny, p.cols, p.col);
    p.planes = (int)(planes < nz ? planes : nz);
    p.u = zeros((size_t)p.nx * (size_t)p.ny * (size_t)p.nz);
    p.west = zeros((size_t)(p.nx * p.planes));
    p.east = zeros((size_t)(p.nx * p.planes));
    p.north = zeros((size_t)(p.ny * p.planes));
    p.south = zeros((size_t)(p.ny * p.planes));

    double total = 0.0;
    for (long i = 0; i < iterations; i++) {
        for (long s = 0; s < sweeps; s++) {
            sweep(&p, +1);
            sweep(&p, -1);
        }
        total = sum_of_squares(&p);
    }
    if (rank == 0)
        printf("wavefront %ld x %ld x %ld, %ld iterations: norm %.9e\n", nx, ny, nz, iterations,
               sqrt(total));
    free(p.u);
    free(p.west);
    free(p.east);
    free(p.north);
    free(p.south);
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
