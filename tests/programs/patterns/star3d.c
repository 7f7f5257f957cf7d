/* The six neighbours of an open 3-D grid in one loop, ranks counted backwards: star3d [cells steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int cells = argument(argc, argv, 1, 29), steps = argument(argc, argv, 2, 5), p[3] = {0, 0, 0};
    MPI_Dims_create(size, 3, p);
    int place = size - 1 - rank, stride[3] = {1, p[0], p[0] * p[1]}, at[3], l[3];
    for (int d = 0; d < 3; d++) {
        at[d] = place / stride[d] % p[d];
        l[d] = cells / p[d] + (at[d] < cells % p[d]);
    }
    static double out[4096], in[6][4096];
    for (int s = 0; s < steps; s++) {
        MPI_Request q[6];
        for (int k = 0; k < 6; k++) {
            int d = k / 2, side = k % 2 ? 1 : -1, inside = at[d] + side >= 0 && at[d] + side < p[d];
            int there = inside ? size - 1 - (place + side * stride[d]) : MPI_PROC_NULL;
            int face = l[(d + 1) % 3] * l[(d + 2) % 3];
            MPI_Irecv(in[k], face, MPI_DOUBLE, there, 0, MPI_COMM_WORLD, &q[k]);
            MPI_Send(out, face, MPI_DOUBLE, there, 0, MPI_COMM_WORLD);
        }
        MPI_Waitall(6, q, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
