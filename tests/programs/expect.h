/* A program under test writes down every event the tracer must record, in order: one line
 * "op peer bytes elem_bytes tag root members" per event into expect-RANK.txt. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *log_file;
static int me, p;
static long failed_polls;

static void expect_open(void)
{
    char name[64];
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    snprintf(name, sizeof name, "expect-%06d.txt", me);
    log_file = fopen(name, "w");
    if (!log_file)
        MPI_Abort(MPI_COMM_WORLD, 2);
}

/* members: -1 none, else the communicator's size */
static void ev(const char *op, int peer, long bytes, int elem, int tag, int root, int members)
{
    fprintf(log_file, "%s %d %ld %d %d %d %d\n", op, peer, bytes, elem, tag, root, members);
}

static void send_ev(const char *op, int peer, long bytes, int elem, int tag)
{
    ev(op, peer, bytes, elem, tag, -1, p);
}

static void done_ev(const char *op, int completed) { ev(op, -1, completed, 1, -1, -1, -1); }

static void coll_ev(const char *op, long bytes, int elem, int root)
{
    ev(op, -1, bytes, elem, -1, root, p);
}

static void comm_ev(const char *op, int members) { ev(op, -1, 0, 1, -1, -1, members); }

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: wrong: %s\n", me, what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void expect_close(void)
{
    ev("MPI_Finalize", -1, 0, 1, -1, -1, p);
    fprintf(log_file, "polls %ld\n", failed_polls);
    fclose(log_file);
}
