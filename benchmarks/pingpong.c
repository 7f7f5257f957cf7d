/* Calls as a program makes them, for benchmarks/replay_cost.py: what the replay adds to them.
 *
 *   pingpong null CALLS PASSES             sends to MPI_PROC_NULL
 *   pingpong pair TURNS PASSES             Irecv, Isend and two Waits of 8 bytes both ways
 *   pingpong BYTES TURNS PASSES [huge]     ping-pong
 *
 * Prints the ns of every pass of rank 0, by its number of calls (null), turns (pair), messages.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static char *buffer(size_t bytes, int huge)
{
    enum { HUGE_PAGE = 2 << 20 };
    size_t room = huge ? (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : bytes;
    char *found = huge ? aligned_alloc(HUGE_PAGE, room) : malloc(room);
    if (huge)
        madvise(found, room, MADV_HUGEPAGE);
    memset(found, 1, room);
    return found;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, turns = atoi(argv[2]), passes = atoi(argv[3]);
    int null = strcmp(argv[1], "null") == 0, pair = strcmp(argv[1], "pair") == 0;
    int bytes = null || pair ? 8 : atoi(argv[1]);
    int huge = argc > 4;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *out = buffer((size_t)bytes + 64, huge), *in = buffer((size_t)bytes + 64, huge);
    for (int pass = -2; pass < passes; pass++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin_ns = now_ns();
        for (int turn = 0; turn < turns; turn++) {
            if (null) {
                MPI_Send(out, bytes, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
            } else if (pair) {
                MPI_Request request[2];
                MPI_Irecv(in, bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, &request[0]);
                MPI_Isend(out, bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, &request[1]);
                MPI_Wait(&request[0], MPI_STATUS_IGNORE);
                MPI_Wait(&request[1], MPI_STATUS_IGNORE);
            } else if (rank == 0) {
                MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            }
        }
        double took_ns = now_ns() - begin_ns;
        if (rank == 0 && pass >= 0)
            printf("%.1f\n", took_ns / turns / (null || pair ? 1 : 2));
    }
    MPI_Finalize();
    return 0;
}
