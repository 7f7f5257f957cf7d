/* Inside of the P3S tracer: what the generated wrappers and the runtime share.
 *
 * A wrapper enters, calls the real MPI function through a pointer, describes what happened
 * and leaves. Until MPI_Init has returned, and inside another wrapper, it only forwards. */
#ifndef P3S_TRACER_H
#define P3S_TRACER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "p3s_generated.h"

#define P3S_EXPORT __attribute__((visibility("default")))
/* Under which name a function takes the place of another one. In an archive that is linked into a
 * program it is the linker's (--wrap), which leaves the real one reachable. */
#ifdef P3S_ARCHIVE
#define P3S_NAME(symbol) __asm__("__wrap_" symbol)
#else
#define P3S_NAME(symbol) __asm__(symbol)
#endif
#define P3S_RA __builtin_return_address(0)
#define P3S_FA __builtin_frame_address(0)
/* MPI handles are int in one family and pointers in the other; both become 64-bit keys. */
#define P3S_HANDLE(h) ((uint64_t)(uintptr_t)(h))

enum { P3S_NONE = -1, P3S_ANY = -2, P3S_PROC_NULL = -3 };
#define P3S_NO_RANK (-1000000)  /* "no root", "no peer": unlike any rank constant of an MPI */

/* The handles the runtime itself needs. Data symbols are looked up, not linked: in a Python
 * process they are not visible when the tracer is loaded. */
struct p3s_handles {
    MPI_Comm comm_world, comm_self, comm_null;
    MPI_Request request_null;
    MPI_Datatype type_null, byte;
    MPI_Message message_no_proc;
};
extern struct p3s_handles p3s_mpi;

/* ---- store: the trace file -------------------------------------------------------------- */

enum {
    P3S_REC_OPNAME = 1, P3S_REC_SITE = 2, P3S_REC_COMM = 3, P3S_REC_CALL = 4, P3S_REC_WINDOW = 5,
    P3S_REC_RUNTIME = 6, P3S_REC_THREAD = 7, P3S_REC_NUMBERS = 8, P3S_REC_NEIGHBOURS = 9,
    P3S_REC_FILE = 12
};
enum { P3S_FLAG_STOPPED = 1, P3S_FLAG_ABORT = 2, P3S_FLAG_LIMITED = 4, P3S_FLAG_PAUSED = 8,
       P3S_FLAG_SAMPLED = 16 };
enum { P3S_WORK_WALL = 1, P3S_WORK_CPU = 2, P3S_WORK_INSTRUCTIONS = 3 };

#define P3S_MAX_COUNTERS 6
#define P3S_NO_EVENT UINT64_MAX /* ordinal of what was not recorded */

struct p3s_header {             /* first page of the file; stays mapped for the whole run */
    char magic[8];
    uint16_t major, minor;
    uint32_t header_bytes;
    int32_t rank, size;
    int64_t init_realtime_ns, init_monotonic_ns, clock_cost_ns, pid;
    uint32_t work_source, counters;
    char family[16], host[64], counter_names[P3S_MAX_COUNTERS][24];
    uint64_t limit_bytes;
    char mpi_version[64], work_origin[64];
    uint64_t run;               /* the same for all ranks of one launch, 0 = not known */
    uint32_t launched;          /* ranks of it as the launcher says, 0 = it does not */
    uint32_t program;           /* which of the launch's programs it is, 0 = not known */
    char reserved[68];
    uint32_t header_crc;
    /* Live totals, so that they survive a kill. */
    uint64_t failed_polls;
    int64_t failed_poll_ns;
    uint32_t in_call;           /* 1 + id of the MPI call the rank is inside of, 0 = none */
    uint32_t flags;
    int32_t abort_code;         /* what MPI_Abort was called with, if flags say it was */
    uint32_t paused;            /* recording is off by MPI_Pcontrol */
    uint64_t paused_calls;
    int64_t tracer_ns;          /* what the tracer itself has taken */
    uint64_t phases_at;         /* where the chunk PHASES begins, 0 = there is none */
    /* Memory of the process that was in use at the end of MPI_Init, and at most up to MPI_Finalize;
     * 0 = not known. How often between the two the thread lost its core to another one. */
    uint64_t resident_init, resident_peak, preempted;
    uint64_t in_handlers;       /* calls in signal handlers, which are not recorded */
    char unused[424];
    /* Held by the thread that called MPI_Init until it ends. The kernel marks it then, before it
     * closes anything, so before a launcher can notice and end the other ranks. */
    pthread_mutex_t alive;
};

struct p3s_call {               /* payload of a CALL record */
    uint32_t op, site;
    int32_t comm, peer, tag, root;
    int64_t bytes, count;
    uint32_t elem_bytes, thread, depth;
    int32_t window;
    uint32_t team, numbers;     /* in the file only if one of them, or what follows, is not 0 */
    uint32_t block;             /* bytes in a row of a datatype that is not contiguous, else 0 */
    uint32_t memory;            /* buffers in memory of a device: P3S_DEVICE_... */
};

/* What threads did between two MPI calls of one of them: a row of THREADS, in this order. */
struct p3s_segment {
    uint64_t regions, nested, team, worked;
    int64_t wall_ns, serial, region_ns, busy_ns, longest_ns, waiting_ns, overhead_ns;
    int64_t others_ns, longest_other_ns;
    uint64_t static_loops, dynamic_loops, sections, barriers, tasks, singles, criticals;
};
#define P3S_SEGMENT_NUMBERS (sizeof(struct p3s_segment) / 8)

/* facts is the header without what the store itself knows. */
bool p3s_store_open(const char *dir, const struct p3s_header *facts);
void p3s_store_close(void);
extern struct p3s_header *p3s_header;   /* NULL while nothing is recorded */
void p3s_warn(const char *what, int error);
extern unsigned char p3s_op_known[];    /* names that are in the file */
/* The following need p3s_lock. */
void p3s_stop(const char *what, int error); /* records nothing any more and says so */
/* Write one definition of the given parts; false when the file could not be extended. */
bool p3s_define(uint32_t kind, const void *head, size_t head_bytes, const void *tail,
                size_t tail_bytes);
void p3s_put_op(uint32_t op);
/* Writes the CALL (once per distinct tuple) and the event; returns the event's ordinal. */
uint64_t p3s_put_event(const struct p3s_call *call, int64_t start_ns, int64_t elapsed_ns,
                       int64_t work, const uint64_t *counters);
void p3s_put_done(uint64_t completing, uint64_t posting, bool cancelled);
void p3s_put_threads(uint64_t ordinal, const struct p3s_segment *segment);
void p3s_put_resolved(uint64_t ordinal, int source, int tag, int64_t bytes);
/* Where in its file an event reads or writes: first byte, and from it to the last one. */
void p3s_put_access(uint64_t ordinal, int64_t offset, int64_t span);

/* ---- map from 64-bit keys to pointers ---------------------------------------------------- */

struct p3s_map { struct p3s_node **buckets; size_t mask, used; };
void *p3s_map_get(const struct p3s_map *m, uint64_t key);
void *p3s_map_put(struct p3s_map *m, uint64_t key, void *value); /* returns the replaced value */
void *p3s_map_take(struct p3s_map *m, uint64_t key);             /* removes */
uint64_t p3s_mix(uint64_t x);

/* ---- threads, clocks, sites --------------------------------------------------------------- */

/* A thread's part in the innermost parallel region that it is in. */
struct p3s_team;
struct p3s_body {
    struct p3s_team *team;      /* NULL outside of parallel regions */
    bool first;                 /* the thread that forked it */
    bool active;                /* at work, not waiting */
    bool in_call;               /* it works on when the MPI call has returned */
    bool ended;                 /* only the barrier of the join is left */
    bool known, worked;         /* counted as one of the team, as one that worked */
    int64_t begun_ns, since_ns, stopped_ns;
    int64_t busy, path, waiting;    /* path: with the longest thread alone of regions inside */
    int64_t handed;             /* of the path: work of MPI calls in the region */
    int64_t said_busy, said_waiting, said_end;  /* as far as the team knows */
    uint64_t counts[8];
};

struct p3s_site_cache;
struct p3s_stack;
struct p3s_scratch;
struct p3s_thread {
    int depth;                  /* inside how many wrappers */
    uintptr_t outer_fa, outer_ra; /* frame of the outermost, and where it returns to */
    uint32_t number;
    bool known;
    int64_t work_at_return;     /* the work clock when the previous wrapper returned */
    int64_t wall_at_return;     /* CLOCK_MONOTONIC then, in CPU time; 0: not known */
    int64_t carried_work;       /* work before calls that became no event */
    struct p3s_site_cache *sites;
    struct p3s_stack *stack;    /* of the call that the gate let in last */
    bool stack_kept;            /* sites owns it */
    struct p3s_scratch *scratch;
    uint32_t site_depth;        /* turns of recursion taken out of the site asked for last */
    uint64_t last_event;        /* ordinal of the event written last */
    int work_fd;                /* 1 more than the descriptor of its instructions; 0: not opened */
    int64_t work_read;          /* what that said last */
    int counter_fd[P3S_MAX_COUNTERS]; /* the first reads them all */
    uint64_t counter_at_return[P3S_MAX_COUNTERS], carried_counter[P3S_MAX_COUNTERS];
    /* Threads: p3s_team.c. */
    struct p3s_body body;
    struct p3s_segment segment; /* since the last event */
    int64_t region_own, region_path, region_wall;   /* of regions since the last wrapper */
    int64_t left_ns;            /* when the MPI call of that wrapper had returned */
    int64_t cpu_ns, cpu_at_ns;  /* CPU time read last, and when */
    uint64_t preempted;         /* how often it had lost its core when that was looked at last */
    struct p3s_pooled *pooled;  /* its entry in the table of threads, NULL of the first */
    bool entries_ahead;         /* the region that begins next was asked for through GOMP_... */
    int loop_ahead;             /* it is one with a loop of this kind, or 0 */
    bool foreign;               /* the MPI library made it */
};
extern __thread struct p3s_thread p3s_self __attribute__((tls_model("initial-exec")));
extern pthread_mutex_t p3s_lock;
extern int p3s_threaded;                /* may several threads call MPI or read files at once? */
extern volatile int p3s_active;         /* between MPI_Init and MPI_Finalize, file writable */
extern int64_t p3s_epoch_ns;            /* CLOCK_MONOTONIC when MPI_Init returned */
extern __thread bool p3s_io_pending __attribute__((tls_model("initial-exec")));
void p3s_io_flush(void);                /* writes the event of the thread's calls of the C library */
void p3s_io_begin(void);

static inline void p3s_hold(void)
{
    if (__builtin_expect(p3s_threaded, 0))
        pthread_mutex_lock(&p3s_lock);
}

static inline void p3s_let_go(void)
{
    if (__builtin_expect(p3s_threaded, 0))
        pthread_mutex_unlock(&p3s_lock);
}

bool p3s_on_alternate_stack(void);      /* is a signal handler at work, on a stack of its own? */

/* Is this call made inside another wrapper? longjmp, or an exception of a C++ error handler, leaves
 * a wrapper without its end: then the outermost one's frame is not below this one any more, or
 * something else is where it was. A handler's own stack may lie anywhere. */
static inline bool p3s_nested(void *fa)
{
    struct p3s_thread *t = &p3s_self;
    if (__builtin_expect(!t->depth, 1))
        return false;
    bool there = (uintptr_t)fa < t->outer_fa;
#if defined(__x86_64__)
    there = there && ((const uintptr_t *)t->outer_fa)[1] == t->outer_ra;
#endif
    there = there || p3s_on_alternate_stack();
    t->depth = there ? t->depth : 0;
    return there;
}

static inline void p3s_go_in(void *ra, void *fa)
{
    if (!p3s_self.depth) {
        p3s_self.outer_ra = (uintptr_t)ra;
        p3s_self.outer_fa = (uintptr_t)fa;
        __atomic_signal_fence(__ATOMIC_RELEASE); /* a signal handler may call MPI too */
    }
    p3s_self.depth++;
}

struct p3s_here {
    void *ra, *fa;
    uint32_t op;
    bool recorded;
    uint32_t numbers;           /* of the call's NUMBERS, 0 = none */
    uint32_t memory;            /* of the call's buffers */
    int64_t clock, clock_at_ns; /* the work clock on entry, and when it was that */
    int64_t entry_ns;           /* what reading clocks took on entry */
    int64_t work, t0_ns, t1_ns;
    uint64_t counter[P3S_MAX_COUNTERS];
};

/* Which of a call's buffers are memory of a device: the one it sends from (or has at all), the one
 * it receives into. Asked only if a runtime of such devices is in the process (p3s_device.c). */
enum { P3S_DEVICE_SENT = 1, P3S_DEVICE_RECEIVED = 2 };
extern bool p3s_devices;
uint32_t p3s_device_memory(const void *sent, const void *received);
#define P3S_BUFFERS(h, sent, received)                                                           \
    ((h)->memory = __builtin_expect(p3s_devices, 0) ? p3s_device_memory(sent, received) : 0)

/* The gate that every call passes before the tracer does anything for it: false while nothing is
 * recorded, inside another wrapper, and in a signal handler. There nothing may be allocated or
 * locked, and stack may be short; such calls are only counted. What is let in is inside a wrapper. */
bool p3s_gate(void *ra, void *fa);
bool p3s_enter(struct p3s_here *h, uint32_t op, void *ra, void *fa);
void p3s_late(void *ra);                /* looks the MPI library up before MPI_Init */
void p3s_return(struct p3s_here *h);
void p3s_leave(struct p3s_here *h);
/* Number of the site of the call that the gate let in, P3S_INSIDE_MPI if the MPI library itself made
 * it. Takes p3s_lock itself; must not hold it. */
#define P3S_INSIDE_MPI UINT32_MAX
uint32_t p3s_site(void);
void p3s_site_thread_end(struct p3s_site_cache *cache);
void p3s_pcontrol(int level);

/* Threads (p3s_team.h): there were some other than the first. */
extern bool p3s_teams;
int64_t p3s_team_work(struct p3s_here *h, int64_t own);
void p3s_team_leave(const struct p3s_here *h);
void p3s_team_forget(void);             /* what threads did until now is in no segment */
uint32_t p3s_size_of_team(void);

/* Size of the team a call is made in, 0 outside of any. */
static inline uint32_t p3s_call_team(void)
{
    return __builtin_expect(p3s_self.body.team != NULL, 0) ? p3s_size_of_team() : 0;
}

/* ---- what wrappers say --------------------------------------------------------------------- */

enum { P3S_RECORD, P3S_FORWARD, P3S_REFUSE };
int p3s_init_enter(struct p3s_here *h, void *ra, void *fa, int *rc);
void p3s_init_done(struct p3s_here *h, int rc);
void p3s_finalize(struct p3s_here *h);
#ifdef P3S_HAVE_Session_init
/* Sessions: the first is an MPI_Init, the end of the last an MPI_Finalize (p3s_session.c). */
void p3s_session_first(struct p3s_here *h, int rc, const MPI_Session *session);
void p3s_session_opened(MPI_Session session);
bool p3s_session_closing(MPI_Session session);  /* is it the last? */
#endif
void p3s_aborting(int code, void *ra);

void p3s_plain(struct p3s_here *h, MPI_Comm comm);
void p3s_nowhere(struct p3s_here *h);   /* an event without a communicator */
void p3s_poll(struct p3s_here *h);
void p3s_p2p(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int64_t count,
             MPI_Datatype type);
void p3s_recv(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
              MPI_Datatype type, const MPI_Status *status);
void p3s_irecv(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
               MPI_Datatype type, uint64_t request);
void p3s_sendrecv(struct p3s_here *h, MPI_Comm comm, int dest, int sendtag, int64_t sendcount,
                  MPI_Datatype sendtype, int source, int recvtag, int64_t recvcount,
                  MPI_Datatype recvtype, const MPI_Status *status);
MPI_Status *p3s_status(MPI_Status *user, MPI_Status *own, int source, int tag);
MPI_Status *p3s_any_status(MPI_Status *user, MPI_Status *own);

struct p3s_message { int comm, peer, tag; };
void p3s_probe(struct p3s_here *h, MPI_Comm comm, int source, int tag, const MPI_Status *status);
void p3s_message_put(uint64_t message, MPI_Comm comm, const MPI_Status *status);
struct p3s_message p3s_message_take(uint64_t message);
void p3s_mrecv(struct p3s_here *h, const struct p3s_message *m, int64_t count,
               MPI_Datatype type);

void p3s_persistent(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int root,
                    int64_t count, MPI_Datatype type, uint64_t request);
/* A persistent message of equal parts, and parts of it that may leave: a list, or n from first on. */
void p3s_partitioned(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int partitions,
                     int64_t count, MPI_Datatype type, uint64_t request);
void p3s_ready(struct p3s_here *h, uint64_t request, int n, int first, const int *list);
void p3s_start(struct p3s_here *h, int n, const MPI_Request *requests);
void p3s_posted(uint64_t request);      /* a new request: forget what its handle once meant */
void p3s_request_free(MPI_Request request, bool nested);
void p3s_cancel(uint64_t request);

#define P3S_SMALL 32
struct p3s_request;
struct p3s_wait {
    int n, nonnull;
    bool tracked, own_statuses, given;  /* given: there are statuses */
    struct p3s_request **requests;      /* what was known of each before the call */
    MPI_Status *statuses;
    struct p3s_request *small_requests[P3S_SMALL];
    MPI_Status small_statuses[P3S_SMALL];
};
MPI_Status *p3s_wait_begin(struct p3s_wait *w, int n, const MPI_Request *requests,
                           MPI_Status *user, bool ignored);
void p3s_completed(struct p3s_here *h, int count);
void p3s_resolve(struct p3s_wait *w, int index, const MPI_Status *status);
void p3s_wait_end(struct p3s_wait *w, int rc, const MPI_Request *requests);

void p3s_coll(struct p3s_here *h, MPI_Comm comm, int root, int64_t count, MPI_Datatype type);
void p3s_coll_bytes(struct p3s_here *h, MPI_Comm comm, int64_t bytes, MPI_Datatype type);
int p3s_fan(MPI_Comm comm);             /* processes this one exchanges with */
int p3s_here_size(MPI_Comm comm);       /* processes of the own side */
int p3s_me(MPI_Comm comm);
int64_t p3s_type_bytes(MPI_Datatype type);
void p3s_type_free(MPI_Datatype type);

void p3s_comm_made(struct p3s_here *h, MPI_Comm parent, MPI_Comm made);
/* Another thread may be given the handle as soon as it is free, so it is forgotten before. */
struct p3s_comm *p3s_comm_forget(MPI_Comm comm);
void p3s_comm_freed(struct p3s_here *h, struct p3s_comm *c);
void p3s_comm_kept(uint64_t handle, struct p3s_comm *c);    /* it was not freed after all */
void p3s_comm_gone(MPI_Comm comm);      /* freed inside another call, by a delete callback */

#define P3S_IN(buffer) ((buffer) == MPI_IN_PLACE)
#define P3S_SUM(counts, n)                                                                       \
    ({ int64_t s_ = 0; int n_ = (n); for (int i_ = 0; i_ < n_; i_++) s_ += (counts)[i_]; s_; })
#include "p3s_window.h"

#endif
