/* A halo on a 2-D grid with an edge, of MPI_Send_init and MPI_Recv_init. */
#include "tally.h"

enum { NX = 480, NY = 240, STEPS = 6 };

int main(int argc, char **argv)
{
    int n, me, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2];
    MPI_Comm grid;
    MPI_Request requests[8];
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Dims_create(n, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Comm_rank(grid, &me);
    MPI_Cart_coords(grid, me, 2, at);
    int size[2] = {part(NY, at[1], dims[1]), part(NX, at[0], dims[0])}, to[4];
    double *a = calloc(8 * NX, sizeof *a), *b = calloc(8 * NX, sizeof *b);
    for (int k = 0; k < 4; k += 2) {
        MPI_Cart_shift(grid, k / 2, 1, &to[k], &to[k + 1]);
        for (int j = k; j < k + 2; j++) {
            MPI_Recv_init(b + 2 * NX * j, size[k / 2], MPI_DOUBLE, to[j], j ^ 1, grid, &requests[j]);
            MPI_Send_init(a + 2 * NX * j, size[k / 2], MPI_DOUBLE, to[j], j, grid, &requests[4 + j]);
        }
    }
    for (int i = 0; i < STEPS; i++) {
        work(a, size[0] * size[1]);
        MPI_Startall(8, requests);
        MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < 4; k++)
            sends(to[k], 8L * size[k / 2]), receives(to[k], 8L * size[k / 2]);
    }
    for (int k = 0; k < 8; k++)
        MPI_Request_free(&requests[k]);
    tell();
    MPI_Finalize();
    return 0;
}
