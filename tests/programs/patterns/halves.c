/* Communicators halved until one rank is left; in each a sum and a swap with the other end:
   halves [words rounds] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 15), rounds = argument(argc, argv, 2, 3), depth = 0, n = size;
    MPI_Comm comm[16] = {MPI_COMM_WORLD};
    double *out = calloc(words, sizeof *out), *in = calloc(words, sizeof *in);
    while (n > 1) {
        int r;
        MPI_Comm_rank(comm[depth], &r);
        MPI_Comm_split(comm[depth], r < n / 2, r, &comm[depth + 1]);
        MPI_Comm_size(comm[++depth], &n);
    }
    for (int s = 0; s < rounds; s++)
        for (int k = 0; k < depth; k++) {
            int r, m;
            MPI_Comm_rank(comm[k], &r);
            MPI_Comm_size(comm[k], &m);
            MPI_Allreduce(out, in, words, MPI_DOUBLE, MPI_SUM, comm[k]);
            if (r != m - 1 - r)
                MPI_Sendrecv(out, k + 1, MPI_DOUBLE, m - 1 - r, 0, in, k + 1, MPI_DOUBLE, m - 1 - r,
                             0, comm[k], MPI_STATUS_IGNORE);
        }
    MPI_Finalize();
    return 0;
}
