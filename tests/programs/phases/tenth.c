/* A halo on a ring with output every tenth step: tenth [steps] [every] */
#include "phases.h"

enum { WORDS = 8 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 25), every = argument(argc, argv, 2, 10);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    double in[2][WORDS], out[2][WORDS] = {{0}}, *file = calloc((size_t)(size * WORDS), 8);
    for (int s = 1; s <= steps; s++) {
        MPI_Request r[4];
        MPI_Irecv(in[0], WORDS, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &r[0]);
        MPI_Irecv(in[1], WORDS, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &r[1]);
        MPI_Isend(out[0], WORDS, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &r[2]);
        MPI_Isend(out[1], WORDS, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &r[3]);
        MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
        if (s % every == 0)
            MPI_Gather(out[0], WORDS, MPI_DOUBLE, file, WORDS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(file);
    MPI_Finalize();
    return 0;
}
