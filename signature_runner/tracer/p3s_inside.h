/* What the files of the runtime share with each other, but not with the wrappers. */
#ifndef P3S_INSIDE_H
#define P3S_INSIDE_H

#include "p3s_tracer.h"

#include <time.h>

struct p3s_comm {
    int id, size, me, refs;
    bool inter;
    int *world;                 /* world rank of each peer (of the remote group if inter) */
    struct p3s_neighbours *around;      /* of its topology; NULL until it is asked for */
};

extern MPI_Group p3s_world_group;
extern int p3s_world_rank;

/* What MPI_Init or a session says of the world; its group is p3s_world_group. */
struct p3s_world { int rank, size; bool sessions; };
/* Begins to record with the call h, unless there is no world or nothing is to be recorded. */
bool p3s_begin(struct p3s_here *h, const struct p3s_world *world);
void p3s_session_world_model(void);     /* MPI_Init was called */

extern uintptr_t p3s_mpi_base;          /* load address of the MPI library */
/* What a call of this function from ra would have reached without the tracer. */
void *p3s_behind(const char *name, void *ra);

extern void *p3s_opened_mpi;            /* the library that the program opened itself, or NULL */
/* Closes the capture of a rank that ends with this code without MPI_Finalize, if the user has said
 * that it does so on purpose; was it closed? Called from inside so many wrappers. */
bool p3s_end(int code, int wrappers);
void p3s_end_begin(void);

/* Says to P3S that a program has the tracer inside. */
#define P3S_ARCHIVE_MARK "P3S tracer in this program"

/* ---- clocks --------------------------------------------------------------------------------- */

extern int p3s_work_source;
extern int64_t p3s_clock_cost, p3s_wall_cost;   /* of a read of the work clock, of CLOCK_MONOTONIC */
extern int p3s_counters;
extern const volatile uint64_t *p3s_instructions;   /* the emulator's; NULL: perf_event counts */
int64_t p3s_perf_now(void);
/* Memory in use and preemptions, into the header: at the end of MPI_Init, before MPI_Finalize. */
void p3s_memory_begin(void);
void p3s_memory_end(void);
uint64_t p3s_preempted(void);           /* how often the thread has lost its core to another one */
/* Choose clock and counters and write into the header which. */
void p3s_clock_choose(const char *directory, struct p3s_header *h);
void p3s_counters_open(struct p3s_thread *t);
void p3s_counters_close(struct p3s_thread *t);
void p3s_counters_read(struct p3s_thread *t, uint64_t *into);

static inline int64_t p3s_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t p3s_work_now(void)
{
    if (p3s_work_source == P3S_WORK_INSTRUCTIONS)
        return p3s_instructions ? (int64_t)*p3s_instructions : p3s_perf_now();
    return p3s_clock_ns(p3s_work_source == P3S_WORK_CPU ? CLOCK_THREAD_CPUTIME_ID
                                                        : CLOCK_MONOTONIC);
}

/* ---- what the files know of each other: needs p3s_lock, p3s_id_of, p3s_simple and p3s_posted
 * excepted */
struct p3s_comm *p3s_comm_of(MPI_Comm comm, const char *op, int parent);
struct p3s_comm *p3s_known(MPI_Comm comm);
/* The world of a program without MPI_COMM_WORLD. */
void p3s_comm_of_sessions(const struct p3s_world *world);
int p3s_world_id(void);
void p3s_release(struct p3s_comm *c);
int p3s_world_of(const struct p3s_comm *c, int rank);
void p3s_world_ranks(MPI_Group group, int n, int *world);
int p3s_id_of(MPI_Comm comm);
extern int64_t p3s_types_freed;         /* how many: handles may mean other types since */
/* A datatype: its bytes, those of the basic elements it is made of (1 if there are several kinds),
 * and those it has in a row on the average (0 if it is contiguous, also several of it). */
struct p3s_type { int64_t size; uint32_t element, block; };
const struct p3s_type *p3s_type_of(MPI_Datatype type);
void p3s_device_look(void);     /* for runtimes of devices that were loaded meanwhile */

struct p3s_call p3s_call_of(uint32_t op, uint32_t site, int comm, int peer, int tag);
void p3s_set_bytes(struct p3s_call *call, int64_t count, MPI_Datatype type);
/* The first event of an MPI call carries its times, a second one carries none. */
uint64_t p3s_put(struct p3s_here *h, const struct p3s_call *call);
void p3s_simple(struct p3s_here *h, int comm, int64_t bytes);
uint64_t p3s_described(struct p3s_here *h, uint32_t op, uint32_t site, const struct p3s_comm *c,
                       int peer, int tag, int64_t count, MPI_Datatype type);
void p3s_resolved(const struct p3s_comm *c, uint64_t ordinal, const MPI_Status *status);
bool p3s_wild(int source, int tag);

/* ---- call sites --------------------------------------------------------------------------- */

#define P3S_MAX_FRAMES 512
#define P3S_MAX_PERIOD 16       /* longest cycle of recursion that is recognised */
#define P3S_TEXT_BYTES 320

struct p3s_stack {                  /* one unwound native stack */
    uintptr_t ra, fa;
    struct p3s_stack *next;
    bool leaf;                  /* cut where the Python interpreter begins */
    int checks;
    uintptr_t *slot, *expect;   /* the return addresses outside the wrapper's own */
    uint64_t key;
    uint32_t site_plus_1;       /* of a native stack that was interned */
    uint32_t depth;             /* turns of recursion that were taken out */
    bool inside_mpi;            /* called by the MPI library itself */
    int frames;
    char **text;
};

/* Look the stack of a call up; false in a signal handler. What that may not do is done before. */
bool p3s_stack(void *ra, void *fa);
void p3s_stack_begin(void);
#define P3S_HASH_BEGIN 0xcbf29ce484222325u
uint64_t p3s_hash_more(uint64_t hash, const char *text, size_t bytes);
uint64_t p3s_hash_text(uint64_t key, const char *text, uint64_t extra);
const char *p3s_base_name(const char *path);
/* Number of the site with this key; writes its record when it is new. Takes p3s_lock. */
uint32_t p3s_intern(uint64_t key, int frames, char *const *text);

extern uintptr_t p3s_python_base;       /* load address of the interpreter's module, or 0 */
bool p3s_python_calls(void);            /* does this thread run Python code? */
uint32_t p3s_python_site(const struct p3s_stack *leaf);

#endif
