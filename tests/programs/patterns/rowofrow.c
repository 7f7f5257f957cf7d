/* Rows of the world, and pairs of each row, split from the row: rowofrow [words rounds] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 8), rounds = argument(argc, argv, 2, 4), mine, length, leader;
    struct grid g = make_grid();
    MPI_Comm row, pair;
    MPI_Comm_split(MPI_COMM_WORLD, g.at[1], g.at[0], &row);
    MPI_Comm_rank(row, &mine);
    MPI_Comm_size(row, &length);
    MPI_Comm_split(row, mine / 2, -mine, &pair);
    MPI_Comm_rank(pair, &leader);
    double *out = calloc(words * size, sizeof *out), *in = calloc(words * size, sizeof *in);
    for (int s = 0; s < rounds; s++) {
        MPI_Allgather(out, words, MPI_DOUBLE, in, words, MPI_DOUBLE, row);
        MPI_Bcast(out, words, MPI_DOUBLE, 0, pair);
        if (mine % 2 && mine + 1 < length)
            MPI_Send(out, words, MPI_DOUBLE, mine + 1, 0, row);
        if (mine % 2 == 0 && mine > 0)
            MPI_Recv(in, words, MPI_DOUBLE, mine - 1, 0, row, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
