/* Communicators halved again and again, with a reduction among the ranks of each. */
#include <mpi.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm all[32];
    int depth = 0, size, rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &all[0]);
    for (;; depth++) {
        MPI_Comm_size(all[depth], &size);
        MPI_Comm_rank(all[depth], &rank);
        if (size < 2) break;
        MPI_Comm_split(all[depth], rank >= size / 2, rank, &all[depth + 1]);
    }
    for (int turn = 0; turn < 6; turn++)
        for (int k = 0; k < depth; k++) {
            double mine = turn, sum;
            MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, all[k]);
        }
    for (int k = depth; k >= 0; k--) MPI_Comm_free(&all[k]);
    MPI_Finalize();
    return 0;
}
