/* Faces, then edges, then corners of a periodic 3-D field with two ghost cells, one function each:
   shells [nx ny nz steps] */
#include "phases/phases.h"

static int p[3], l[3], at[3];
static float out[20000], in[20000];

static void shift(int x, int y, int z, int tag)
{
    int way[3] = {x, y, z}, to = 0, from = 0, points = 1;
    for (int d = 0; d < 3; d++) {
        to = to * p[d] + (at[d] + way[d] + p[d]) % p[d];
        from = from * p[d] + (at[d] - way[d] + p[d]) % p[d];
        points *= way[d] ? 2 : l[d];
    }
    MPI_Sendrecv(out, points, MPI_FLOAT, to, tag, in, points, MPI_FLOAT, from, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 4, 3);
    MPI_Dims_create(size, 3, p);
    at[0] = rank / (p[1] * p[2]), at[1] = rank / p[2] % p[1], at[2] = rank % p[2];
    for (int d = 0; d < 3; d++)
        l[d] = argument(argc, argv, 1 + d, (int[]){48, 36, 24}[d]) / p[d];
    for (int s = 0; s < steps; s++) {
        for (int w = -1; w <= 1; w += 2)
            shift(w, 0, 0, 1), shift(0, w, 0, 2), shift(0, 0, w, 3);
        for (int w = -1; w <= 1; w += 2)
            for (int v = -1; v <= 1; v += 2)
                shift(w, v, 0, 4), shift(0, w, v, 5), shift(v, 0, w, 6);
        for (int k = 0; k < 8; k++)
            shift(k & 1 ? 1 : -1, k & 2 ? 1 : -1, k & 4 ? 1 : -1, 7);
    }
    MPI_Finalize();
    return 0;
}
