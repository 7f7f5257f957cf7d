/* Heat equation in a periodic box: 3-D halo exchange with packed faces.
 *
 * Every rank owns a block of the NX x NY x NZ cells (any size, the remainder goes to the first
 * ranks) on a periodic Cartesian process grid, and exchanges its six faces in one loop over
 * dimensions and directions. A dimension with one rank talks to itself, through MPI as well.
 */
#include <math.h>
#include <mpi.h>

#include "options.h"

struct box {
    int n[3];             /* own cells per dimension */
    long first[3];        /* global index of the first own cell */
    size_t stride[3];     /* in the array with ghost cells */
    int neighbour[3][2];  /* rank towards lower and higher coordinates */
    double *out[3][2], *in[3][2];
    MPI_Comm comm;
};

static size_t at(const struct box *b, int x, int y, int z)
{
    return (size_t)x * b->stride[0] + (size_t)y * b->stride[1] + (size_t)z * b->stride[2];
}

/* The two dimensions of a face that is perpendicular to d. */
static const int ACROSS[3][2] = {{1, 2}, {0, 2}, {0, 1}};

static int face_cells(const struct box *b, int d)
{
    return b->n[ACROSS[d][0]] * b->n[ACROSS[d][1]];
}

/* Copy the layer of cells with index `layer` in dimension d to (or from) a buffer. */
static void copy_face(const struct box *b, double *u, int d, int layer, double *buffer, int unpack)
{
    int e = ACROSS[d][0], f = ACROSS[d][1];
    size_t k = 0;
    for (int i = 1; i <= b->n[e]; i++)
        for (int j = 1; j <= b->n[f]; j++, k++) {
            size_t cell = (size_t)layer * b->stride[d] + (size_t)i * b->stride[e]
                          + (size_t)j * b->stride[f];
            if (unpack)
                u[cell] = buffer[k];
            else
                buffer[k] = u[cell];
        }
}

static void exchange(const struct box *b, double *u)
{
    MPI_Request requests[12];
    int n = 0;
    /* A message that travels in direction s carries tag 2 d + s, so that the two neighbours of a
     * dimension with two ranks (or one) are told apart. */
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 2; s++)
            MPI_Irecv(b->in[d][s], face_cells(b, d), MPI_DOUBLE, b->neighbour[d][s],
                      2 * d + (1 - s), b->comm, &requests[n++]);
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 2; s++) {
            copy_face(b, u, d, s == 0 ? 1 : b->n[d], b->out[d][s], 0);
            MPI_Isend(b->out[d][s], face_cells(b, d), MPI_DOUBLE, b->neighbour[d][s], 2 * d + s,
                      b->comm, &requests[n++]);
        }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 2; s++)
            copy_face(b, u, d, s == 0 ? 0 : b->n[d] + 1, b->in[d][s], 1);
}

static void diffuse(const struct box *b, const double *u, double *next)
{
    const double c = 0.1;
    for (int x = 1; x <= b->n[0]; x++)
        for (int y = 1; y <= b->n[1]; y++)
            for (int z = 1; z <= b->n[2]; z++) {
                size_t i = at(b, x, y, z);
                next[i] = u[i] + c * (u[i - b->stride[0]] + u[i + b->stride[0]]
                                      + u[i - b->stride[1]] + u[i + b->stride[1]]
                                      + u[i - b->stride[2]] + u[i + b->stride[2]] - 6.0 * u[i]);
            }
}

static void simulate(const struct box *b, const long extent[3], long iterations, int rank)
{
    size_t cells = b->stride[0] * (size_t)(b->n[0] + 2);
    double *u = zeros(cells), *next = zeros(cells);
    double local[2] = {0.0, 0.0}, total[2]; /* heat, sum of squares */

    for (int x = 1; x <= b->n[0]; x++)
        for (int y = 1; y <= b->n[1]; y++)
            for (int z = 1; z <= b->n[2]; z++) {
                long gx = b->first[0] + x, gy = b->first[1] + y, gz = b->first[2] + z;
                u[at(b, x, y, z)] = 1.0 + (double)((gx * 31 + gy * 17 + gz * 7) % 101) / 101.0;
            }
    for (long i = 0; i < iterations; i++) {
        exchange(b, u);
        diffuse(b, u, next);
        double *other = u;
        u = next;
        next = other;
    }
    for (int x = 1; x <= b->n[0]; x++)
        for (int y = 1; y <= b->n[1]; y++)
            for (int z = 1; z <= b->n[2]; z++) {
                local[0] += u[at(b, x, y, z)];
                local[1] += u[at(b, x, y, z)] * u[at(b, x, y, z)];
            }
    MPI_Allreduce(local, total, 2, MPI_DOUBLE, MPI_SUM, b->comm);
    if (rank == 0)
        printf("halo3d %ld x %ld x %ld, %ld iterations: heat %.9e norm %.9e\n", extent[0],
               extent[1], extent[2], iterations, total[0], sqrt(total[1]));
    free(u);
    free(next);
}

static int run(int argc, char **argv, int rank, int size)
{
    long extent[3] = {40, 40, 40}, iterations = 20;
    const struct option options[] = {
        {"nx", &extent[0], 1, "cells in the first dimension"},
        {"ny", &extent[1], 1, "cells in the second dimension"},
        {"nz", &extent[2], 1, "cells in the third dimension"},
        {"iterations", &iterations, 1, "time steps"},
    };
    int code = parse_options(argc, argv, rank, "halo3d",
                             "Heat equation in a periodic box: 3-D halo exchange.", options, 4);
    if (code != RUN)
        return code;

    int dims[3] = {0, 0, 0}, periods[3] = {1, 1, 1}, coords[3];
    struct box b;
    MPI_Dims_create(size, 3, dims);
    for (int d = 0; d < 3; d++)
        if (dims[d] > extent[d])
            return refuse(rank, "halo3d", "%ld cells do not fill %d ranks in dimension %d; use "
                          "fewer ranks or more cells", extent[d], dims[d], d);
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, 0, &b.comm);
    MPI_Cart_coords(b.comm, rank, 3, coords);
    for (int d = 0; d < 3; d++) {
        b.n[d] = block_size(extent[d], dims[d], coords[d]);
        b.first[d] = block_start(extent[d], dims[d], coords[d]);
        MPI_Cart_shift(b.comm, d, 1, &b.neighbour[d][0], &b.neighbour[d][1]);
    }
    b.stride[2] = 1;
    b.stride[1] = (size_t)(b.n[2] + 2);
    b.stride[0] = b.stride[1] * (size_t)(b.n[1] + 2);
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 2; s++) {
            b.out[d][s] = zeros((size_t)face_cells(&b, d));
            b.in[d][s] = zeros((size_t)face_cells(&b, d));
        }

    simulate(&b, extent, iterations, rank);

    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 2; s++) {
            free(b.out[d][s]);
            free(b.in[d][s]);
        }
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
