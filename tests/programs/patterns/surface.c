/* Faces of a box on the grid with the least surface between ranks, z fastest:
   surface [nx ny nz steps] */
#include "phases/phases.h"

static int L[3], p[3], at[3];

static void choose(void)
{
    double least = 1e300;
    for (int a = 1; a <= size; a++)
        for (int b = 1; size % a == 0 && b <= size / a; b++) {
            if (size / a % b)
                continue;
            int c = size / a / b;
            double s = (double)L[1] * L[2] * (a - 1) + (double)L[0] * L[2] * (b - 1) +
                       (double)L[0] * L[1] * (c - 1);
            if (s < least)
                least = s, p[0] = a, p[1] = b, p[2] = c;
        }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int d = 0; d < 3; d++)
        L[d] = argument(argc, argv, 1 + d, 24 + 24 * d);
    int steps = argument(argc, argv, 4, 3);
    choose();
    at[0] = rank / (p[1] * p[2]), at[1] = rank / p[2] % p[1], at[2] = rank % p[2];
    int stride[3] = {p[1] * p[2], p[2], 1}, l[3];
    for (int d = 0; d < 3; d++)
        l[d] = L[d] / p[d] + (at[d] < L[d] % p[d]);
    double *out = calloc(L[1] * L[2], sizeof *out), *in = calloc(L[1] * L[2], sizeof *in);
    for (int s = 0; s < steps; s++)
        for (int d = 0; d < 3; d++) {
            int face = l[(d + 1) % 3] * l[(d + 2) % 3];
            int low = at[d] > 0 ? rank - stride[d] : MPI_PROC_NULL;
            int high = at[d] < p[d] - 1 ? rank + stride[d] : MPI_PROC_NULL;
            MPI_Sendrecv(out, face, MPI_DOUBLE, low, d, in, face, MPI_DOUBLE, high, d,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Sendrecv(out, face, MPI_DOUBLE, high, d, in, face, MPI_DOUBLE, low, d,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    MPI_Finalize();
    return 0;
}
