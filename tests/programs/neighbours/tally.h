/* What a rank sends and receives, counted by the program itself: a line per rank at the end,
 * "tally RANK sends BYTES receives BYTES". Messages to MPI_PROC_NULL are none. */
#ifndef TALLY_H
#define TALLY_H
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long tally_sends, tally_sent, tally_receives, tally_received;

static inline void sends(int rank, long bytes)
{
    if (rank != MPI_PROC_NULL) {
        tally_sends++;
        tally_sent += bytes;
    }
}

static inline void receives(int rank, long bytes)
{
    if (rank != MPI_PROC_NULL) {
        tally_receives++;
        tally_received += bytes;
    }
}

static void tell(void)
{
    int me;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    printf("tally %d %ld %ld %ld %ld\n", me, tally_sends, tally_sent, tally_receives,
           tally_received);
    fflush(stdout);
}

/* Elements of part c of n that whole is cut into. */
static inline int part(int whole, int c, int n) { return whole * (c + 1) / n - whole * c / n; }

static inline double work(double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i % 1024] = x[i % 1024] * 0.5 + i;
    return s;
}
#endif
