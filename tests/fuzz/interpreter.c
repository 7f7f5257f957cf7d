/* Gives the replay's inner loop programs that the bytes of an input say, and an MPI in which every
 * message arrives at once: it reads what is sent and writes what is received, so that a sanitizer
 * sees buffers that are too small. Time passes only where somebody waits for it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

/* As on a machine whose memory is short; everything below is small. */
#define MEMORY ((size_t)1 << 24)

static void *fuzz_malloc(size_t bytes) { return bytes > MEMORY ? NULL : malloc(bytes); }

static void *fuzz_calloc(size_t n, size_t bytes)
{
    return bytes && n > MEMORY / bytes ? NULL : calloc(n, bytes);
}

static void *fuzz_aligned_alloc(size_t align, size_t bytes)
{
    return bytes > MEMORY ? NULL : aligned_alloc(align, bytes);
}

static int64_t time_ns;

static int fuzz_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    time_ns += 20000;
    *t = (struct timespec){time_ns / 1000000000, time_ns % 1000000000};
    return 0;
}

static int fuzz_nanosleep(clockid_t clock, int flags, const struct timespec *t,
                          struct timespec *left)
{
    (void)clock, (void)flags, (void)left;
    if (t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec > 999999999)
        __builtin_trap();       /* the kernel would not sleep at all */
    time_ns += t->tv_sec * 1000000000 + t->tv_nsec;
    return 0;
}

#define malloc fuzz_malloc
#define calloc fuzz_calloc
#define aligned_alloc fuzz_aligned_alloc
#define clock_gettime fuzz_gettime
#define clock_nanosleep fuzz_nanosleep
#define madvise(where, bytes, advice) ((void)(where), 0)
#define prctl(...) 0
#include "inner.c"
#undef malloc
#undef calloc
#undef aligned_alloc

/* ---- the MPI ------------------------------------------------------------------------------- */

enum { PROCESSES = 4, HANDLES = 8 };

struct request {
    int persistent, active, receives;
    char *buffer;
    size_t bytes;
    struct request *next;
};

static struct request *alive;   /* those of slots that are used twice are left over */

static struct input *rest;      /* decides what completes first */
static unsigned touched;

static void read_all(const void *buffer, size_t bytes)
{
    const unsigned char *p = buffer;
    for (size_t i = 0; i < bytes; i += i + 64 < bytes ? 64 : 1)
        touched += p[i];
}

static void write_all(void *buffer, size_t bytes)
{
    if (bytes)
        memset(buffer, 2, bytes);
}

static int good(int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm)
{
    (void)type;
    if (count < 0 || tag < -1 || comm <= MPI_COMM_NULL || comm >= HANDLES)
        return MPI_ERR_ARG;
    return peer < MPI_PROC_NULL || peer >= PROCESSES ? MPI_ERR_RANK : MPI_SUCCESS;
}

static int post(int error, MPI_Request *r, const void *buffer, size_t bytes, int receives,
                int persistent)
{
    if (error)
        return error;
    struct request *made = calloc(1, sizeof *made);
    *made = (struct request){persistent, !persistent, receives, (char *)buffer, bytes, alive};
    *r = alive = made;
    return MPI_SUCCESS;
}

static void forget(struct request *q)
{
    struct request **at = &alive;
    while (*at && *at != q)
        at = &(*at)->next;
    if (*at)
        *at = q->next;
    free(q);
}

static void complete(MPI_Request *r)
{
    struct request *q = *r;
    if (!q)
        return;
    if (q->active && q->receives)
        write_all(q->buffer, q->bytes);
    else if (q->active)
        read_all(q->buffer, q->bytes);
    q->active = 0;
    if (q->persistent)
        return;
    forget(q);
    *r = MPI_REQUEST_NULL;
}

MPI_Comm MPI_Comm_f2c(int handle) { return handle; }
int MPI_Comm_size(MPI_Comm comm, int *size) { *size = comm % PROCESSES + 1; return 0; }
int MPI_Comm_group(MPI_Comm comm, MPI_Group *group) { *group = comm; return 0; }
int MPI_Group_free(MPI_Group *group) { *group = 0; return 0; }

int MPI_Group_translate_ranks(MPI_Group a, int n, const int *ranks, MPI_Group b, int *found)
{
    (void)a;
    for (int i = 0; i < n; i++) {
        if (ranks[i] >= PROCESSES)
            return MPI_ERR_RANK;
        found[i] = ranks[i] <= b % PROCESSES ? ranks[i] : MPI_UNDEFINED;
    }
    return MPI_SUCCESS;
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    int error = good(count, type, dest, tag < 0 ? -2 : tag, comm);
    if (!error)
        read_all(buf, (size_t)count * (size_t)type);
    return error;
}

int MPI_Ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return MPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    (void)status;
    int error = good(count, type, source, tag, comm);
    if (!error)
        write_all(buf, (size_t)count * (size_t)type);
    if (!error && type == MPI_INT64_T)  /* a control message */
        for (int i = 0; i < count; i++)
            ((int64_t *)buf)[i] = number(rest);
    return error;
}

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                 MPI_Comm comm, MPI_Status *status)
{
    int error = MPI_Send(sendbuf, sendcount, sendtype, dest, sendtag, comm);
    return error ? error : MPI_Recv(recvbuf, recvcount, recvtype, source, recvtag, comm, status);
}

#define POSTS(name, constant, tags, receives, persistent)                                        \
    int MPI_##name(constant void *buf, int count, MPI_Datatype type, int peer, int tag,          \
                   MPI_Comm comm, MPI_Request *r)                                                \
    {                                                                                            \
        return post(good(count, type, peer, tags, comm), r, buf, (size_t)count * (size_t)type,   \
                    receives, persistent);                                                       \
    }
POSTS(Isend, const, tag < 0 ? -2 : tag, 0, 0)
POSTS(Issend, const, tag < 0 ? -2 : tag, 0, 0)
POSTS(Irecv, , tag, 1, 0)
POSTS(Send_init, const, tag < 0 ? -2 : tag, 0, 1)
POSTS(Ssend_init, const, tag < 0 ? -2 : tag, 0, 1)
POSTS(Recv_init, , tag, 1, 1)

int MPI_Start(MPI_Request *r)
{
    if (!*r || (*r)->active)
        return MPI_ERR_ARG;
    (*r)->active = 1;
    return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request *r)
{
    forget(*r);
    *r = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

int MPI_Wait(MPI_Request *r, MPI_Status *status)
{
    (void)status;
    complete(r);
    return MPI_SUCCESS;
}

int MPI_Test(MPI_Request *r, int *flag, MPI_Status *status)
{
    *flag = byte(rest) % 4 == 0;
    return *flag ? MPI_Wait(r, status) : MPI_SUCCESS;
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    (void)statuses;
    if (count < 0)
        return MPI_ERR_ARG;
    for (int i = 0; i < count; i++)
        complete(&requests[i]);
    return MPI_SUCCESS;
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
    (void)status;
    if (count < 0)
        return MPI_ERR_ARG;
    *index = MPI_UNDEFINED;
    int first = count ? (int)(byte(rest) % (unsigned)count) : 0;
    for (int i = 0; i < count; i++) {
        int at = (first + i) % count;
        if (requests[at] && requests[at]->active) {
            complete(&requests[at]);
            *index = at;
            break;
        }
    }
    return MPI_SUCCESS;
}

int MPI_Waitsome(int incount, MPI_Request *requests, int *outcount, int *indices,
                 MPI_Status *statuses)
{
    int most = 1 + (int)(byte(rest) % 4), which;
    *outcount = 0;
    for (; *outcount < most; indices[(*outcount)++] = which) {
        int error = MPI_Waitany(incount, requests, &which, statuses);
        if (error)
            return error;
        if (which == MPI_UNDEFINED)
            break;
    }
    if (*outcount == 0)
        *outcount = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    (void)source, (void)tag, (void)comm, (void)status;
    *flag = 0;
    return MPI_SUCCESS;
}

/* Every member in every role, so that the buffers must do for a root, too; what a member sends is
 * what it receives. */
static int moved(int error, const void *out, size_t sent, void *in, size_t received)
{
    if (!error) {
        read_all(out, sent);
        write_all(in, received);
        memmove(in, out, sent < received ? sent : received);
    }
    return error;
}

#define MEMBERS ((size_t)(comm % PROCESSES) + 1)
#define EITHER(name, parameters, passed, root, count, out, sent, in, received)                   \
    static int do_##name parameters                                                              \
    {                                                                                            \
        int error = good(count, 1, root, 0, comm);                                               \
        size_t n = (size_t)(count) * (size_t)type;                                               \
        (void)n;                                                                                 \
        return moved(error, out, sent, in, received);                                            \
    }                                                                                            \
    int MPI_##name parameters { return do_##name passed; }
#define UNPACK(...) __VA_ARGS__
#define BOTH_WAYS(name, small, parameters, passed, root, count, out, sent, in, received)         \
    EITHER(name, (UNPACK parameters), (UNPACK passed), root, count, out, sent, in, received)     \
    int MPI_I##small(UNPACK parameters, MPI_Request *r)                                          \
    {                                                                                            \
        int error = do_##name(UNPACK passed);                                                    \
        return post(error, r, NULL, 0, 0, 0);                                                    \
    }

BOTH_WAYS(Bcast, bcast, (void *in, int count, MPI_Datatype type, int root, MPI_Comm comm),
          (in, count, type, root, comm), root, count, in, n, in, n)
BOTH_WAYS(Gather, gather, (const void *out, int count, MPI_Datatype type, void *in, int incount,
          MPI_Datatype intype, int root, MPI_Comm comm),
          (out, count, type, in, incount, intype, root, comm), root, count, out, n, in,
          n * MEMBERS)
BOTH_WAYS(Scatter, scatter, (const void *out, int count, MPI_Datatype type, void *in, int incount,
          MPI_Datatype intype, int root, MPI_Comm comm),
          (out, count, type, in, incount, intype, root, comm), root, count, out, n * MEMBERS, in,
          n)
BOTH_WAYS(Allgather, allgather, (const void *out, int count, MPI_Datatype type, void *in,
          int incount, MPI_Datatype intype, MPI_Comm comm),
          (out, count, type, in, incount, intype, comm), 0, count, out, n, in, n * MEMBERS)
BOTH_WAYS(Alltoall, alltoall, (const void *out, int count, MPI_Datatype type, void *in,
          int incount, MPI_Datatype intype, MPI_Comm comm),
          (out, count, type, in, incount, intype, comm), 0, count, out, n * MEMBERS, in,
          n * MEMBERS)
BOTH_WAYS(Reduce, reduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
          int root, MPI_Comm comm), (out, in, count, type, op, root, comm), root, count, out, n,
          in, n)
BOTH_WAYS(Allreduce, allreduce, (const void *out, void *in, int count, MPI_Datatype type,
          MPI_Op op, MPI_Comm comm), (out, in, count, type, op, comm), 0, count, out, n, in, n)
BOTH_WAYS(Reduce_scatter_block, reduce_scatter_block, (const void *out, void *in, int count,
          MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, count, type, op, comm), 0,
          count, out, n * MEMBERS, in, n)
BOTH_WAYS(Scan, scan, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
          MPI_Comm comm), (out, in, count, type, op, comm), 0, count, out, n, in, n)
BOTH_WAYS(Exscan, exscan, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
          MPI_Comm comm), (out, in, count, type, op, comm), 0, count, out, n, in, n)

int MPI_Barrier(MPI_Comm comm) { return good(0, 1, 0, 0, comm); }

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *r)
{
    return post(MPI_Barrier(comm), r, NULL, 0, 0, 0);
}

/* ---- programs ------------------------------------------------------------------------------- */

enum { MOST_EVENTS = 48, MOST_LISTS = 48, MOST_LINKS = 1 << 16 };
#define MOST_NS ((int64_t)10000000000)

/* An event is mostly one that there can be. */
static struct event event(struct input *in, int64_t slots)
{
    struct event e = {.code = 1 + one_of(in, 21), .peer = one_of(in, PROCESSES), .at_ns = -1,
                      .sample = -1, .slot = one_of(in, (uint32_t)(slots > 0 ? slots & 63 : 1))};
    uint32_t how = byte(in);
    e.bytes = one_of(in, 128) * 8;
    e.number = one_of(in, 8);
    e.arg = one_of(in, 12);
    e.comm = one_of(in, 3);
    if (how & 1)
        e.offset = one_of(in, 64) * 8;
    if (how & 2)
        e.first = one_of(in, MOST_LISTS);
    if (how & 4)
        e.work_ns = number(in);
    if (how & 8)
        e.at_ns = number(in);
    if (how & 16)
        e.tag = number(in);
    int64_t *field = (int64_t *)&e;
    for (uint32_t n = how >> 5; n > 4; n--) /* 3 of 8: up to three fields are anything */
        field[one_of(in, 13)] = number(in);
    return e;
}

static void replay(struct loop *s, struct input *in, const struct event *events,
                   const struct program *g)
{
    int64_t links = 0, pieces = 0, passes = 1 + byte(in) % 2;
    for (int64_t i = 0; i < g->count; i++) {
        links += events[i].code == LINK_RECV ? events[i].number : 0;
        pieces += events[i].work_ns > 0;
        /* What would take as long as it says. */
        if (events[i].number > MOST_LINKS || events[i].work_ns > MOST_NS
            || events[i].at_ns > MOST_NS)
            return;
    }
    if (links < 0)
        abort();                /* numpy would have refused it */
    size_t n = (size_t)passes;
    struct timings t = {
        calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(n * (size_t)g->records + 1, 16),
        calloc(n * (size_t)links + 1, 8), calloc(n * (size_t)pieces + 1, 8),
        passes * pieces, 0};
    int64_t found[4];
    int error = MPI_SUCCESS;
    for (int again = 0; again < 2 && error == MPI_SUCCESS; again++) {
        error = p3s_run(s, passes, number(in) % 1000000, again ? 1.0 : 0.0, again, &t);
        p3s_outstanding(s, found, 4);
    }
    void *owned[] = {t.start_ns, t.end_ns, t.late_ns, t.times_ns, t.links_ns, t.errors_ns};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size}, *in = &input;
    uint32_t odd = byte(in);
    int64_t slots = odd & 1 ? number(in) : one_of(in, 64);
    int count = (int)one_of(in, MOST_EVENTS), lists = (int)one_of(in, MOST_LISTS),
        n_comms = (int)one_of(in, 4);
    struct program g = {.count = count, .n_lists = lists, .n_slots = slots,
                        .n_comms = n_comms, .idle = odd >> 1 & 1};
    /* Of exactly the size that is said: a sanitizer sees what is read beyond. */
    struct event *events = malloc(sizeof *events * (size_t)count + 1);
    int64_t *list = malloc(sizeof *list * (size_t)lists + 1),
            *record = malloc(sizeof *record * (size_t)count + 1);
    int *comms = malloc(sizeof *comms * (size_t)n_comms + 1);
    for (int i = 0; i < n_comms; i++)
        comms[i] = (int)one_of(in, HANDLES);
    for (int i = 0; i < lists; i++)
        list[i] = odd & 16 ? number(in) : one_of(in, (uint32_t)(slots > 0 ? slots & 63 : 1));
    for (int i = 0; i < count; i++) {
        events[i] = event(in, slots);
        /* As recorded() in collect.py has it. */
        bool kept = byte(in) & 1 || events[i].code == LINK_SEND || events[i].code == LINK_RECV;
        record[i] = kept ? g.records++ : -1;
    }
    g.events = events;
    g.lists = list;
    g.record = record;
    g.comms = comms;
    rest = in;
    time_ns = 1000000;
    lead_ns = 2 * SHORTEST_LEAD_NS;
    int world[3] = {PROCESSES - 1, PROCESSES - 1, PROCESSES - 1}, error;
    int64_t overshoot_ns[BUCKETS] = {0};
    struct progress progress = {0};
    struct loop *s = p3s_open(world, &g, (int)one_of(in, 3), (int)(odd >> 5 & 1), overshoot_ns,
                              &progress, &error);
    if (!s && error == MPI_SUCCESS)
        abort();
    if (s)
        replay(s, in, events, &g);
    p3s_close(s);
    while (alive)
        forget(alive);
    free(events);
    free(list);
    free(record);
    free(comms);
    return 0;
}
