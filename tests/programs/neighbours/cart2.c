/* A halo on a 2-D grid, with and without an edge: sizes that differ by direction. */
#include "tally.h"

enum { NX = 240, NY = 480, STEPS = 6 };

int main(int argc, char **argv)
{
    int n, me, dims[2] = {0, 0}, periods[2], at[2], to[4];
    MPI_Comm grid;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Dims_create(n, 2, dims);
    periods[0] = periods[1] = argc > 1 && argv[1][0] == 'p';
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Comm_rank(grid, &me);
    MPI_Cart_coords(grid, me, 2, at);
    for (int d = 0; d < 2; d++)
        MPI_Cart_shift(grid, d, 1, &to[2 * d], &to[2 * d + 1]);
    int x = part(NX, at[0], dims[0]), y = part(NY, at[1], dims[1]);
    /* Wide towards higher coordinates, narrow towards lower ones. */
    int out[4] = {y, 2 * y, x, 3 * x}, in[4] = {2 * y, y, 3 * x, x}, where[4];
    for (int k = 0; k < 4; k++)
        where[k] = 2 * NY * k;
    double *a = calloc(8 * NY, sizeof *a), *b = calloc(8 * NY, sizeof *b), s;
    for (int i = 0; i < STEPS; i++) {
        s = work(a, x * y);
        MPI_Neighbor_alltoallv(a, out, where, MPI_DOUBLE, b, in, where, MPI_DOUBLE, grid);
        MPI_Neighbor_alltoall(a, 5, MPI_DOUBLE, b, 5, MPI_DOUBLE, grid);
        for (int k = 0; k < 4; k++) {
            sends(to[k], 8L * out[k]), receives(to[k], 8L * in[k]);
            sends(to[k], 40), receives(to[k], 40);
        }
    }
    MPI_Allreduce(&s, b, 1, MPI_DOUBLE, MPI_SUM, grid);
    tell();
    MPI_Finalize();
    return 0;
}
