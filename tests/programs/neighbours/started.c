/* MPI_Neighbor_alltoallv_init and MPI_Neighbor_alltoall_init on a periodic 2-D grid. */
#include "tally.h"

enum { NX = 240, NY = 480, STEPS = 5 };

int main(int argc, char **argv)
{
    int n, me, dims[2] = {0, 0}, periods[2] = {1, 1}, at[2], to[4];
    MPI_Comm grid;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Dims_create(n, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Comm_rank(grid, &me);
    MPI_Cart_coords(grid, me, 2, at);
    int size[2] = {part(NY, at[1], dims[1]), part(NX, at[0], dims[0])}, counts[4], where[4];
    for (int k = 0; k < 4; k++) {
        counts[k] = size[k / 2];
        where[k] = k * NY;
    }
    for (int d = 0; d < 2; d++)
        MPI_Cart_shift(grid, d, 1, &to[2 * d], &to[2 * d + 1]);
    double *a = calloc(4 * NY, sizeof *a), *b = calloc(4 * NY, sizeof *b), *c = calloc(64, 8);
    MPI_Neighbor_alltoallv_init(a, counts, where, MPI_DOUBLE, b, counts, where, MPI_DOUBLE, grid,
                                MPI_INFO_NULL, &requests[0]);
    MPI_Neighbor_alltoall_init(c, 3, MPI_DOUBLE, c + 32, 3, MPI_DOUBLE, grid, MPI_INFO_NULL,
                               &requests[1]);
    for (int i = 0; i < STEPS; i++) {
        MPI_Startall(2, requests);
        work(a, size[0] * size[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < 4; k++) {
            sends(to[k], 8L * counts[k]), receives(to[k], 8L * counts[k]);
            sends(to[k], 24), receives(to[k], 24);
        }
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    tell();
    MPI_Finalize();
    return 0;
}
