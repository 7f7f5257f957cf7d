/* Faces of a 3-D grid with an edge, by MPI_Ineighbor_alltoallw with types that are not contiguous. */
#include "tally.h"

enum { N = 48, STEPS = 5 };

int main(int argc, char **argv)
{
    int n, me, dims[3] = {0, 0, 0}, periods[3] = {0, 0, 0}, at[3], to[6], ones[6], own[3];
    MPI_Comm grid;
    MPI_Datatype out[6], in[6];
    MPI_Aint where[6] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Dims_create(n, 3, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, 0, &grid);
    MPI_Comm_rank(grid, &me);
    MPI_Cart_coords(grid, me, 3, at);
    for (int d = 0; d < 3; d++) {
        MPI_Cart_shift(grid, d, 1, &to[2 * d], &to[2 * d + 1]);
        own[d] = part(N, at[d], dims[d]);
    }
    long face[6];
    for (int k = 0; k < 6; k++) {
        int all[3] = {own[0] + 2, own[1] + 2, own[2] + 2}, some[3], first[3] = {1, 1, 1};
        for (int d = 0; d < 3; d++)
            some[d] = d == k / 2 ? 1 : own[d];
        first[k / 2] = k % 2 ? own[k / 2] : 1;
        MPI_Type_create_subarray(3, all, some, first, MPI_ORDER_C, MPI_DOUBLE, &out[k]);
        first[k / 2] = k % 2 ? own[k / 2] + 1 : 0;
        MPI_Type_create_subarray(3, all, some, first, MPI_ORDER_C, MPI_DOUBLE, &in[k]);
        MPI_Type_commit(&out[k]);
        MPI_Type_commit(&in[k]);
        face[k] = 8L * some[0] * some[1] * some[2];
        ones[k] = 1;
    }
    double *a = calloc((size_t)(own[0] + 2) * (own[1] + 2) * (own[2] + 2) + 1024, sizeof *a);
    for (int i = 0; i < STEPS; i++) {
        MPI_Request request;
        MPI_Ineighbor_alltoallw(a, ones, where, out, a, ones, where, in, grid, &request);
        work(a, own[0] * own[1] * own[2]);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int k = 0; k < 6; k++)
            sends(to[k], face[k]), receives(to[k], face[k]);
    }
    tell();
    MPI_Finalize();
    return 0;
}
