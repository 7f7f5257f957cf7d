/* Halo on a grid made by halving the dimension whose blocks are longest, y fastest:
   longest [nx ny nz steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int L[3], p[3] = {1, 1, 1}, l[3], steps = argument(argc, argv, 4, 5);
    for (int d = 0; d < 3; d++)
        L[d] = argument(argc, argv, 1 + d, (int[]){40, 100, 64}[d]);
    for (int parts = 1; parts < size; parts *= 2) {
        int longest = 0;
        for (int d = 1; d < 3; d++)
            if ((double)L[d] / p[d] > (double)L[longest] / p[longest])
                longest = d;
        p[longest] *= 2;
    }
    int stride[3] = {p[1], 1, p[0] * p[1]}, at[3];
    for (int d = 0; d < 3; d++) {
        at[d] = rank / stride[d] % p[d];
        l[d] = (at[d] + 1) * L[d] / p[d] - at[d] * L[d] / p[d];
    }
    double *buffer = calloc(13 * L[1] * L[2], sizeof *buffer), *in = buffer + L[1] * L[2];
    for (int s = 0; s < steps; s++) {
        MPI_Request q[12];
        int m = 0;
        for (int d = 0; d < 3; d++)
            for (int side = -1; side <= 1; side += 2) {
                if (at[d] + side < 0 || at[d] + side >= p[d])
                    continue;
                int face = l[(d + 1) % 3] * l[(d + 2) % 3], there = rank + side * stride[d];
                MPI_Irecv(in, face, MPI_DOUBLE, there, 0, MPI_COMM_WORLD, &q[m++]);
                MPI_Isend(buffer, face, MPI_DOUBLE, there, 0, MPI_COMM_WORLD, &q[m++]);
                in += L[1] * L[2];
            }
        MPI_Waitall(m, q, MPI_STATUSES_IGNORE);
        in = buffer + L[1] * L[2];
    }
    MPI_Finalize();
    return 0;
}
