/* Particles: bodies that all attract each other, and dust that is spread on a mesh.
 *
 * In a turn of the first loop all ranks get all bodies (MPI_Allgather) and each adds up the forces
 * on its own: a rank's data hardly shrinks as ranks are added. In a turn of the second loop the dust
 * of a rank is spread on its part of the mesh and moved by it (random access), several times, and
 * the edges of the mesh are passed on.
 */
#include <math.h>
#include <mpi.h>

#include "../../../examples/options.h"

enum { FIELDS = 4 };   /* x, y, z, mass */

static void attract(const double *all, int count, int first, double *own, int mine)
{
    for (int i = 0; i < mine; i++) {
        const double *at = &all[FIELDS * (first + i)];
        double fx = 0.0, fy = 0.0, fz = 0.0;
        for (int j = 0; j < count; j++) {
            double x = all[FIELDS * j] - at[0], y = all[FIELDS * j + 1] - at[1];
            double z = all[FIELDS * j + 2] - at[2];
            double square = x * x + y * y + z * z + 0.01;
            double pull = all[FIELDS * j + 3] / (square * sqrt(square));
            fx += pull * x;
            fy += pull * y;
            fz += pull * z;
        }
        own[FIELDS * i] += 1e-6 * fx;
        own[FIELDS * i + 1] += 1e-6 * fy;
        own[FIELDS * i + 2] += 1e-6 * fz;
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
    long bodies = 2560, width = 1024, height = 1280, dust = 3 << 18;
    long steps = 4, turns = 6, passes = 8;
    const struct option options[] = {
        {"bodies", &bodies, 1, "bodies that attract each other, a multiple of the ranks"},
        {"width", &width, 2, "points of the mesh in a row"},
        {"height", &height, 1, "rows of the mesh"},
        {"dust", &dust, 1, "particles of dust"},
        {"steps", &steps, 1, "steps"},
        {"turns", &turns, 1, "turns of either loop per step"},
        {"passes", &passes, 1, "times the dust is spread and moved in a turn"},
    };
    int code = parse_options(argc, argv, rank, "particles", "Bodies and dust.", options, 7);
    if (code != RUN)
        return code;
    if (bodies / size < 1 || height / size < 2 || dust / size < 1)
        return refuse(rank, "particles", "too little of something for %d ranks; use fewer ranks "
                      "or larger numbers", size);

    int each = (int)(bodies / size), count = each * size;   /* the same on every rank */
    int rows = block_size(height, size, rank), columns = (int)width;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    long grains = block_size(dust, size, rank);
    double *own = zeros((size_t)each * FIELDS), *all = zeros((size_t)count * FIELDS);
    double *grain = zeros((size_t)grains * 2);
    double *mesh = zeros((size_t)rows * (size_t)width);
    unsigned long seed = (unsigned long)rank + 7;
    for (long i = 0; i < 2 * grains; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        grain[i] = (double)(seed >> 11) * 0x1p-53;
    }
    for (int i = 0; i < each * FIELDS; i++)
        own[i] = 0.01 * (double)((i * 37 + rank) % 101);

    for (long step = 0; step < steps; step++) {
        for (long turn = 0; turn < turns; turn++) {
            MPI_Allgather(own, each * FIELDS, MPI_DOUBLE, all, each * FIELDS, MPI_DOUBLE,
                          MPI_COMM_WORLD);
            attract(all, count, rank * each, own, each);
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
    double sum = own[0] + mesh[columns / 2], total;
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("particles: %.9e\n", total);
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
