/* Nonblocking and persistent collectives around a ring of messages, blocks of N / p rows: what the
 * model has to predict at counts it never saw. One MPI_Put per round. Argument: rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1021 };

int main(int argc, char **argv)
{
    int me, p, rounds = argc > 1 ? atoi(argv[1]) : 6;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    int mine = ROWS / p + (me < ROWS % p), right = (me + 1) % p, left = (me + p - 1) % p;
    double *rows = calloc(ROWS + 1, sizeof *rows), *other = calloc(ROWS + 1, sizeof *other);
    double sum = 0, all = 0, cell = me;
    int *counts = malloc(sizeof(int) * (size_t)p), *places = malloc(sizeof(int) * (size_t)p);
    for (int i = 0; i < p; i++) {
        counts[i] = ROWS / p + (i < ROWS % p);
        places[i] = i ? places[i - 1] + counts[i - 1] : 0;
    }
    MPI_Win win;
    MPI_Request r[4];
#if MPI_VERSION >= 4
    MPI_Request again[2];
    MPI_Bcast_init(other, 40, MPI_DOUBLE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &again[0]);
    MPI_Allreduce_init(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &again[1]);
#endif
    MPI_Win_create(&cell, sizeof cell, sizeof cell, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int round = 0; round < rounds; round++) {
        MPI_Irecv(other, ROWS, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &r[0]);
        MPI_Isend(rows, mine, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &r[1]);
        MPI_Iallreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r[2]);
        for (int i = 0; i < mine; i++)
            rows[i] += 1.0 / (i + 1 + round);
        MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
        MPI_Iallgatherv(rows, mine, MPI_DOUBLE, other, counts, places, MPI_DOUBLE, MPI_COMM_WORLD,
                        &r[3]);
        MPI_Wait(&r[3], MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
        MPI_Startall(2, again);
        MPI_Waitall(2, again, MPI_STATUSES_IGNORE);
#endif
        MPI_Win_fence(0, win);
        if (me == 0)
            MPI_Put(&all, 1, MPI_DOUBLE, p - 1, 0, 1, MPI_DOUBLE, win);
        MPI_Win_fence(0, win);
    }
    MPI_Win_free(&win);
#if MPI_VERSION >= 4
    MPI_Request_free(&again[0]);
    MPI_Request_free(&again[1]);
#endif
    if (me == 0)
        printf("%g\n", all + rows[0]);
    MPI_Finalize();
    return 0;
}
