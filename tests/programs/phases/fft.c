/* FFT on a 2-D decomposition: transposes in row and column communicators: fft [steps] [words] */
#include "phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 6), words = argument(argc, argv, 2, 32);
    struct grid g = make_grid();
    MPI_Comm row, column;
    MPI_Comm_split(MPI_COMM_WORLD, g.at[0], g.at[1], &row);
    MPI_Comm_split(MPI_COMM_WORLD, g.at[1], g.at[0], &column);
    int most = g.extent[0] > g.extent[1] ? g.extent[0] : g.extent[1];
    double *from = calloc((size_t)(words * most), sizeof *from);
    double *to = calloc((size_t)(words * most), sizeof *to), sum = 0.0, all;

    MPI_Alltoall(from, words, MPI_DOUBLE, to, words, MPI_DOUBLE, row); /* plans */
    for (int s = 0; s < steps; s++) {
        MPI_Alltoall(from, words, MPI_DOUBLE, to, words, MPI_DOUBLE, row);
        MPI_Alltoall(to, words, MPI_DOUBLE, from, words, MPI_DOUBLE, column);
        MPI_Alltoall(from, words, MPI_DOUBLE, to, words, MPI_DOUBLE, column);
        MPI_Alltoall(to, words, MPI_DOUBLE, from, words, MPI_DOUBLE, row);
        MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    }
    MPI_Comm_free(&row);
    MPI_Comm_free(&column);
    free(from);
    free(to);
    MPI_Finalize();
    return 0;
}
