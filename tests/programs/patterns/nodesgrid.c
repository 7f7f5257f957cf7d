/* Nodes of four ranks, two by two; nodes along x and y in turn; the ranks of a node are numbered
   together: nodesgrid [words steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 24), steps = argument(argc, argv, 2, 4), m[2] = {0, 0};
    MPI_Dims_create(size / 4, 2, m);
    int node = rank / 4, core = rank % 4;
    int x = 2 * (node % m[1]) + core % 2, y = 2 * (node / m[1]) + core / 2;
    double *out = calloc(words, sizeof *out), *in = calloc(words, sizeof *in);
    for (int s = 0; s < steps; s++)
        for (int k = 0; k < 4; k++) {
            int way = k % 2 ? 1 : -1, a[2], who[2];
            for (int end = 0; end < 2; end++, way = -way) { /* where to, then where from */
                a[0] = x + (k < 2 ? way : 0), a[1] = y + (k < 2 ? 0 : way);
                int inside = a[0] >= 0 && a[0] < 2 * m[1] && a[1] >= 0 && a[1] < 2 * m[0];
                int there = 4 * (a[1] / 2 * m[1] + a[0] / 2) + a[1] % 2 * 2 + a[0] % 2;
                who[end] = inside ? there : MPI_PROC_NULL;
            }
            MPI_Sendrecv(out, words, MPI_DOUBLE, who[0], k, in, words, MPI_DOUBLE, who[1], k,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    MPI_Finalize();
    return 0;
}
