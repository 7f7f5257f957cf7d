/* Diffusion with a variable coefficient in pencils of a 3-D grid: sweeps, then lines.
 *
 * The grid is cut in y and z, x stays whole. In a turn of the first loop the faces are exchanged
 * and the pencil is swept SWEEPS times (7 points); in a turn of the second every line along x is
 * solved LINES times (tridiagonal) and the largest change is found by all ranks.
 */
#include <math.h>
#include <mpi.h>

#include "../../../examples/options.h"

struct pencil {
    int nx, ny, nz;
    MPI_Comm comm;
    int low_y, high_y, low_z, high_z;
    MPI_Datatype face_y;
};

#define AT(x, y, z) \
    (((size_t)(z) * (size_t)(p->ny + 2) + (size_t)(y)) * (size_t)p->nx + (size_t)(x))

static void exchange(const struct pencil *p, double *u)
{
    int face_z = p->nx * (p->ny + 2);
    MPI_Request requests[8];
    MPI_Irecv(&u[AT(0, 0, 0)], face_z, MPI_DOUBLE, p->low_z, 0, p->comm, &requests[0]);
    MPI_Irecv(&u[AT(0, 0, p->nz + 1)], face_z, MPI_DOUBLE, p->high_z, 1, p->comm, &requests[1]);
    MPI_Irecv(&u[AT(0, 0, 1)], 1, p->face_y, p->low_y, 2, p->comm, &requests[2]);
    MPI_Irecv(&u[AT(0, p->ny + 1, 1)], 1, p->face_y, p->high_y, 3, p->comm, &requests[3]);
    MPI_Isend(&u[AT(0, 0, p->nz)], face_z, MPI_DOUBLE, p->high_z, 0, p->comm, &requests[4]);
    MPI_Isend(&u[AT(0, 0, 1)], face_z, MPI_DOUBLE, p->low_z, 1, p->comm, &requests[5]);
    MPI_Isend(&u[AT(0, p->ny, 1)], 1, p->face_y, p->high_y, 2, p->comm, &requests[6]);
    MPI_Isend(&u[AT(0, 1, 1)], 1, p->face_y, p->low_y, 3, p->comm, &requests[7]);
    MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
}

static void sweep(const struct pencil *p, const double *u, double *next, const double *f,
                  const double *k)
{
    size_t row = (size_t)p->nx, plane = row * (size_t)(p->ny + 2);
    for (int z = 1; z <= p->nz; z++)
        for (int y = 1; y <= p->ny; y++)
            for (int x = 1; x < p->nx - 1; x++) {
                size_t i = AT(x, y, z);
                double around = u[i - 1] + u[i + 1] + u[i - row] + u[i + row] + u[i - plane]
                                + u[i + plane];
                next[i] = u[i] + k[i] * (around - 6.0 * u[i]) + f[i];
            }
}

/* Solve every line along x; returns the largest value met. */
static double lines(const struct pencil *p, double *u, const double *k, double *work)
{
    double most = 0.0, *factor = work, *value = work + p->nx;
    for (int z = 1; z <= p->nz; z++)
        for (int y = 1; y <= p->ny; y++) {
            double *line = &u[AT(0, y, z)];
            const double *weight = &k[AT(0, y, z)];
            factor[0] = weight[0];
            value[0] = line[0];
            for (int x = 1; x < p->nx; x++) {
                double pivot = 1.0 / (1.0 + weight[x] * (2.0 - factor[x - 1]));
                factor[x] = weight[x] * pivot;
                value[x] = (line[x] + weight[x] * value[x - 1]) * pivot;
            }
            line[p->nx - 1] = value[p->nx - 1];
            for (int x = p->nx - 2; x >= 0; x--)
                line[x] = value[x] + factor[x] * line[x + 1];
            most = line[p->nx / 2] > most ? line[p->nx / 2] : most;
        }
    return most;
}

static void solve(const struct pencil *p, int rank, long steps, long turns, long sweeps,
                  long solves)
{
    size_t points = (size_t)p->nx * (size_t)(p->ny + 2) * (size_t)(p->nz + 2);
    double *u = zeros(points), *next = zeros(points), *f = zeros(points), *k = zeros(points);
    double *work = zeros(2 * (size_t)p->nx), most = 0.0;
    for (size_t i = 0; i < points; i++) {
        u[i] = next[i] = 1.0 + 0.01 * (double)(i % 13);
        f[i] = 0.001 * (double)(i % 7);
        k[i] = 0.1 + 0.01 * (double)(i % 3);
    }
    for (long step = 0; step < steps; step++) {
        for (long turn = 0; turn < turns; turn++) {
            exchange(p, u);
            for (long s = 0; s < sweeps; s++) {
                sweep(p, u, next, f, k);
                double *other = u;
                u = next;
                next = other;
            }
        }
        for (long turn = 0; turn < turns; turn++) {
            double own = 0.0;
            for (long s = 0; s < solves; s++)
                own = lines(p, u, k, work);
            MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, p->comm);
        }
    }
    if (rank == 0)
        printf("pencils: largest %.9e\n", most);
    /* The memory goes back at exit: that is the kernel's time, not the program's. */
}

static int run(int argc, char **argv, int rank, int size)
{
    long nx = 100, ny = 112, nz = 120, steps = 4, turns = 6, sweeps = 16, solves = 2;
    const struct option options[] = {
        {"nx", &nx, 3, "points along the pencils"},
        {"ny", &ny, 1, "points in the second dimension"},
        {"nz", &nz, 1, "points in the third dimension"},
        {"steps", &steps, 1, "steps"},
        {"turns", &turns, 1, "turns of either loop per step"},
        {"sweeps", &sweeps, 1, "local sweeps after an exchange"},
        {"solves", &solves, 1, "solutions of all lines in a turn"},
    };
    int code = parse_options(argc, argv, rank, "pencils", "Diffusion in pencils of a 3-D grid.",
                             options, 7);
    if (code != RUN)
        return code;

    int dims[2] = {0, 0}, periods[2] = {1, 1}, coords[2];
    struct pencil p;
    MPI_Dims_create(size, 2, dims);
    if (dims[0] > nz || dims[1] > ny)
        return refuse(rank, "pencils", "%ld x %ld lines do not fill %d x %d ranks", nz, ny,
                      dims[0], dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &p.comm);
    MPI_Cart_coords(p.comm, rank, 2, coords);
    MPI_Cart_shift(p.comm, 0, 1, &p.low_z, &p.high_z);
    MPI_Cart_shift(p.comm, 1, 1, &p.low_y, &p.high_y);
    p.nx = (int)nx;
    p.nz = block_size(nz, dims[0], coords[0]);
    p.ny = block_size(ny, dims[1], coords[1]);
    MPI_Type_vector(p.nz, p.nx, p.nx * (p.ny + 2), MPI_DOUBLE, &p.face_y);
    MPI_Type_commit(&p.face_y);
    solve(&p, rank, steps, turns, sweeps, solves);
    MPI_Type_free(&p.face_y);
    MPI_Comm_free(&p.comm);
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
