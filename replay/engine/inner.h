/* What the parts of the inner loop share; see inner.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

/* The numbers are those of replay/plan/program.py. */
enum code {
    SEND = 1, SSEND, ISEND, ISSEND, IRECV, COLLECTIVE_START = 7, RECV, SENDRECV, SECOND, WAIT,
    WAITANY, WAITSOME, COLLECTIVE, BUFFERED, ASK, ANSWER, NOTHING, END, LINK_SEND, LINK_RECV
};

enum collective {
    BARRIER = 1, BCAST, REDUCE, ALLREDUCE, GATHER, SCATTER, ALLGATHER, ALLTOALL,
    REDUCE_SCATTER_BLOCK, SCAN, EXSCAN
};

enum pages { PAGES_SMALL, PAGES_HUGE };

enum {
    ANY = -1,        /* as a peer or tag of a receive: any */
    NOBODY = -2,     /* as a peer: MPI_PROC_NULL */
    WINDOW = 16,     /* messages of a link program that are under way at a time */
    CONTROL_WORDS = 3
};

/* More than these no program has: longer times, larger buffers. Sums of them do not overflow. */
#define LONGEST_NS ((int64_t)1 << 53)
#define MOST_BYTES ((int64_t)1 << 46)

/* What p3s_run and p3s_open return beside MPI's error codes. */
enum { NO_MEMORY = -1, WRONG_CONTROL = -2, NO_MEMBER = -3, BAD_EVENT = -4 };

/* A program's event as it comes from Python. */
struct event {
    int64_t code, peer, tag, bytes, offset, work_ns, arg, comm, slot, first, number, at_ns, sample;
};

/* An event made ready: what a call needs and nothing else. */
struct op {
    int32_t code, peer, tag, bytes, arg, slot, number;
    int32_t record; /* where its begin and end are kept, -1: nowhere */
    int64_t work_ns, at_ns;
    char *buffer, *second; /* second: of collectives, where the result goes */
    const int64_t *list;
    MPI_Comm comm;
    int32_t in_order; /* the slots of the list come one after the other */
    int32_t link;     /* LINK_RECV: where the times of its messages are kept */
};

/* Where this process is; read by the watchdog while the loop runs. One word per field. */
struct progress {
    volatile int64_t pass, event, state, beats;
};

enum state { OUTSIDE, AT_START, IN_PASS };

enum { BUCKETS = 24 };

struct clockwork {
    int64_t debt_ns;                /* computation that has not been slept yet */
    int64_t overshoot_ns[BUCKETS];  /* median, by the logarithm of the length of the sleep in us */
    int shared_cores;
    int64_t *errors_ns;             /* of every emulated piece: took minus length */
    int64_t errors, errors_room;
};

struct loop {
    MPI_Comm messages, control, quiet;
    int me, size;
    struct op *ops;
    int64_t count;
    char *out, *in;
    size_t out_room, in_room;
    enum pages pages;
    MPI_Request *slots, *scratch, *hidden;
    int *indices, *posted; /* posted: event that a slot's request comes from */
    int64_t n_slots, n_hidden;
    int64_t records, links;
    int idle; /* nothing to do in this program */
    int64_t late_ns; /* how late it learned of the start of the last pass */
    struct clockwork work;
    struct progress *progress;
};

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
