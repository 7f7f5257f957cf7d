/* Work that is slept, so that a few cores show how it scales: W/n seconds a rank, halves of
   messages that get shorter with the square root of n, a sum in every turn. Prints its run time. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, turns = 10;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double work = argc > 1 ? atof(argv[1]) : 8.0, sum = 0.0, mine = rank;
    int bytes = (int)(32768 / sqrt(ranks));
    char *out = calloc(bytes, 1), *in = calloc(bytes, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int turn = 0; turn < turns; turn++) {
        double each = work / ranks / turns;
        struct timespec nap = {(time_t)each, (long)((each - (time_t)each) * 1e9)};
        nanosleep(&nap, NULL);
        MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % ranks, 1, in, bytes, MPI_BYTE,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    double took = MPI_Wtime() - begin, most;
    MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("took %.6f s\n", most);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
