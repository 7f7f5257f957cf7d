/* The bits of n are dealt to y, x, z in turn; periodic shifts up every dimension, x fastest:
   dealt [cells steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int cells = argument(argc, argv, 1, 96), steps = argument(argc, argv, 2, 6);
    int p[3] = {1, 1, 1}, turn[3] = {1, 0, 2}, k = 0;
    for (int left = size; left > 1; left /= 2)
        p[turn[k++ % 3]] *= 2;
    int stride[3] = {1, p[0], p[0] * p[1]};
    double *out = calloc(cells * cells, sizeof *out), *in = calloc(cells * cells, sizeof *in);
    for (int s = 0; s < steps; s++) {
        for (int d = 0; d < 3; d++) {
            int at = rank / stride[d] % p[d], face = cells * cells * p[d] / size;
            int up = rank + ((at + 1) % p[d] - at) * stride[d];
            int down = rank + ((at + p[d] - 1) % p[d] - at) * stride[d];
            if (p[d] > 1)
                MPI_Sendrecv(out, face, MPI_DOUBLE, up, d, in, face, MPI_DOUBLE, down, d,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
