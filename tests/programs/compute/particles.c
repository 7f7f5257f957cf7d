/* Particles: bodies that all attract each other, and dust that is spread on a mesh.
 *
 * In a step the blocks of bodies travel once around the ring, each rank adding the forces on its
 * own (as many turns as ranks). Then, in TURNS turns, the dust of a rank is spread on its part of
 * the mesh (random access), the edges of the mesh are passed on, and the mesh is read back.
 */
#include <math.h>
#include <mpi.h>

#include "../../../examples/options.h"

enum { FIELDS = 4 };   /* x, y, z, mass */

static void attract(const double *own, const double *other, double *force, int count, int others)
{
    for (int i = 0; i < count; i++) {
        double fx = 0.0, fy = 0.0, fz = 0.0;
        for (int j = 0; j < others; j++) {
            double x = other[FIELDS * j] - own[FIELDS * i];
            double y = other[FIELDS * j + 1] - own[FIELDS * i + 1];
            double z = other[FIELDS * j + 2] - own[FIELDS * i + 2];
            double square = x * x + y * y + z * z + 0.01;
            double pull = other[FIELDS * j + 3] / (square * sqrt(square));
            fx += pull * x;
            fy += pull * y;
            fz += pull * z;
        }
        force[3 * i] += fx;
        force[3 * i + 1] += fy;
        force[3 * i + 2] += fz;
    }
}

static void spread(double *mesh, const double *dust, long count, int width, int height)
{
    for (long i = 0; i < count; i++) {
        double x = dust[2 * i] * (width - 1), y = dust[2 * i + 1] * (height - 1);
        int column = (int)x, row = (int)y;
        double a = x - column, b = y - row;
        double *cell = &mesh[(size_t)row * (size_t)width + (size_t)column];
        cell[0] += (1.0 - a) * (1.0 - b);
        cell[1] += a * (1.0 - b);
        cell[width] += (1.0 - a) * b;
        cell[width + 1] += a * b;
    }
}

static void move_dust(const double *mesh, double *dust, long count, int width, int height)
{
    for (long i = 0; i < count; i++) {
        int column = (int)(dust[2 * i] * (width - 1)), row = (int)(dust[2 * i + 1] * (height - 1));
        double push = 1e-9 * mesh[(size_t)row * (size_t)width + (size_t)column];
        dust[2 * i] += push * (0.5 - dust[2 * i]);
        dust[2 * i + 1] += push * (0.5 - dust[2 * i + 1]);
    }
}

static int run(int argc, char **argv, int rank, int size)
{
    long bodies = 6144, width = 1024, height = 2560, dust = 1 << 20;
    long steps = 4, turns = 6, passes = 4;
    const struct option options[] = {
        {"bodies", &bodies, 1, "bodies that attract each other"},
        {"width", &width, 2, "points of the mesh in a row"},
        {"height", &height, 1, "rows of the mesh"},
        {"dust", &dust, 1, "particles of dust"},
        {"steps", &steps, 1, "steps"},
        {"turns", &turns, 1, "turns of the dust per step"},
        {"passes", &passes, 1, "times the dust is spread and moved in a turn"},
    };
    int code = parse_options(argc, argv, rank, "particles", "Bodies and dust.", options, 7);
    if (code != RUN)
        return code;
    if (bodies / size < 1 || height / size < 2 || dust / size < 1)
        return refuse(rank, "particles", "too little of something for %d ranks; use fewer ranks "
                      "or larger numbers", size);

    int most = block_size(bodies, size, 0), count = block_size(bodies, size, rank);
    int rows = block_size(height, size, rank), columns = (int)width;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    long grains = block_size(dust, size, rank);
    double *own = zeros((size_t)most * FIELDS), *there = zeros((size_t)most * FIELDS);
    double *force = zeros((size_t)most * 3), *grain = zeros((size_t)grains * 2);
    double *mesh = zeros((size_t)rows * (size_t)width);
    unsigned long seed = (unsigned long)rank + 7;
    for (long i = 0; i < 2 * grains; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        grain[i] = (double)(seed >> 11) * 0x1p-53;
    }
    for (int i = 0; i < count * FIELDS; i++)
        own[i] = 0.01 * (double)((i * 37 + rank) % 101);

    for (long step = 0; step < steps; step++) {
        for (int i = 0; i < most * FIELDS; i++)
            there[i] = own[i];
        for (int turn = 0; turn < size; turn++) {
            attract(own, there, force, count, block_size(bodies, size, (rank + turn) % size));
            MPI_Sendrecv_replace(there, most * FIELDS, MPI_DOUBLE, left, 0, right, 0,
                                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        for (long turn = 0; turn < turns; turn++) {
            for (long pass = 0; pass < passes; pass++) {
                spread(mesh, grain, grains, columns, rows);
                move_dust(mesh, grain, grains, columns, rows);
            }
            MPI_Sendrecv(&mesh[(size_t)(rows - 1) * (size_t)width], columns, MPI_DOUBLE, right, 1,
                         mesh, columns, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    double sum = force[0] + mesh[columns / 2], all;
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("particles: %.9e\n", all);
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
