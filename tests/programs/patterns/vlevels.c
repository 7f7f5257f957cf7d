/* A V-cycle over levels of one field: faces of (L/p + 2) (L/p' + 2) points, L halved per level,
   x fastest: vlevels [nx ny nz levels cycles] */
#include "phases/phases.h"

static int p[3], at[3];
static double out[20000], in[20000];

static void swap_faces(const int *length)
{
    int stride[3] = {1, p[0], p[0] * p[1]};
    for (int d = 0; d < 3; d++) {
        int a = (d + 1) % 3, b = (d + 2) % 3;
        int face = (length[a] / p[a] + 2) * (length[b] / p[b] + 2);
        int low = at[d] > 0 ? rank - stride[d] : MPI_PROC_NULL;
        int high = at[d] < p[d] - 1 ? rank + stride[d] : MPI_PROC_NULL;
        MPI_Sendrecv(out, face, MPI_DOUBLE, high, d, in, face, MPI_DOUBLE, low, d, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, face, MPI_DOUBLE, low, d, in, face, MPI_DOUBLE, high, d, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int levels = argument(argc, argv, 4, 3), cycles = argument(argc, argv, 5, 2), length[3];
    MPI_Dims_create(size, 3, p);
    at[0] = rank % p[0], at[1] = rank / p[0] % p[1], at[2] = rank / (p[0] * p[1]);
    for (int d = 0; d < 3; d++)
        length[d] = argument(argc, argv, 1 + d, (int[]){192, 96, 96}[d]);
    for (int c = 0; c < cycles; c++) {
        for (int v = 1; v < levels; v++) {
            swap_faces(length);
            for (int d = 0; d < 3; d++)
                length[d] /= 2;
        }
        swap_faces(length);
        for (int v = 1; v < levels; v++) {
            for (int d = 0; d < 3; d++)
                length[d] *= 2;
            swap_faces(length);
        }
    }
    MPI_Finalize();
    return 0;
}
