/* All touching boxes of an open 3-D grid from one call, faces, edges and corners by size, z fastest:
   box26 [nx ny nz steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int p[3] = {0, 0, 0}, l[3], to[26], length[26], m = 0, steps = argument(argc, argv, 4, 4);
    MPI_Dims_create(size, 3, p);
    int at[3] = {rank / (p[1] * p[2]), rank / p[2] % p[1], rank % p[2]};
    for (int d = 0; d < 3; d++) {
        int cells = argument(argc, argv, 1 + d, 30 + 7 * d);
        l[d] = cells / p[d] + (at[d] < cells % p[d]);
    }
    for (int k = 0; k < 27; k++) {
        int way[3] = {k / 9 - 1, k / 3 % 3 - 1, k % 3 - 1}, there = 0, points = 1;
        for (int d = 0; d < 3 && there >= 0; d++) {
            int c = at[d] + way[d];
            there = c < 0 || c >= p[d] ? -1 : there * p[d] + c;
            points *= way[d] ? 1 : l[d];
        }
        if (k != 13 && there >= 0)
            to[m] = there, length[m++] = points;
    }
    static double out[4096], in[26][4096];
    MPI_Request q[26];
    for (int s = 0; s < steps; s++) {
        for (int k = 0; k < m; k++)
            MPI_Irecv(in[k], length[k], MPI_DOUBLE, to[k], 5, MPI_COMM_WORLD, &q[k]);
        for (int k = 0; k < m; k++)
            MPI_Send(out, length[k], MPI_DOUBLE, to[k], 5, MPI_COMM_WORLD);
        MPI_Waitall(m, q, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
