/* Both neighbours of every dimension of a torus from one pair of calls: torus [words steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 33), steps = argument(argc, argv, 2, 5);
    int p[3] = {0, 0, 0}, periods[3] = {1, 1, 1};
    MPI_Comm torus;
    MPI_Dims_create(size, 3, p);
    MPI_Cart_create(MPI_COMM_WORLD, 3, p, periods, 0, &torus);
    double *out = calloc(words, sizeof *out), *in = calloc(words, sizeof *in);
    for (int s = 0; s < steps; s++)
        for (int d = 0; d < 3; d++)
            for (int way = 1; way >= -1; way -= 2) {
                int from, to;
                MPI_Cart_shift(torus, d, way, &from, &to);
                if (to != rank)
                    MPI_Sendrecv(out, words, MPI_DOUBLE, to, 0, in, words, MPI_DOUBLE, from, 0,
                                 torus, MPI_STATUS_IGNORE);
            }
    MPI_Finalize();
    return 0;
}
