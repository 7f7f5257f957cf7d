/* Finding the MPI library of the program, MPI_Init and MPI_Finalize, entering and leaving a
 * wrapper. */
#include "p3s_inside.h"
#include "p3s_team.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__thread struct p3s_thread p3s_self;
pthread_mutex_t p3s_lock = PTHREAD_MUTEX_INITIALIZER;
volatile int p3s_active;
int64_t p3s_epoch_ns;
struct p3s_real p3s_real, p3s_next;
struct p3s_handles p3s_mpi;
MPI_Group p3s_world_group;
int p3s_world_rank;

uintptr_t p3s_mpi_base;
int p3s_threaded;

static bool resolved_mpi, ended;        /* ended: recording is over */
static uint32_t next_thread;
static pthread_key_t thread_key;

#ifndef P3S_ARCHIVE
static bool ours(void *function)
{
    Dl_info info, self;
    return function && dladdr(function, &info) && dladdr((void *)p3s_late, &self) &&
           info.dli_fbase == self.dli_fbase;
}

/* In a Python process libmpi is not in the global scope: ask the calling module, whose
 * dependencies include it. If the caller is no such module, the program may have opened libmpi. */
static void *caller_library(void *ra)
{
    Dl_info info;
    void *found = NULL, *init = NULL;
    if (dladdr(ra, &info) && info.dli_fname && strchr(info.dli_fname, '/'))
        found = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    init = found ? dlsym(found, "PMPI_Init") : NULL;
    return init && !ours(init) ? found : p3s_opened_mpi;
}

static void *look(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    found = found && !ours(found) ? found : dlsym(RTLD_NEXT, name);
    return ours(found) ? NULL : found;
}

void *p3s_behind(const char *name, void *ra)
{
    void *found = dlsym(RTLD_NEXT, name);
    return found ? found : look(caller_library(ra), name);
}

/* Data may live in the program itself (a copy relocation), which RTLD_NEXT would pass over. */
static void *look_data(void *library, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found || !library ? found : dlsym(library, name);
}

/* The library's PMPI_X for our own use and for callers of PMPI_X; for callers of MPI_X what they
 * would have reached without us, which may be another tool. */
static bool find_mpi(void *ra, char *path, size_t path_bytes)
{
    void *library = caller_library(ra), *init = look(library, "PMPI_Init");
    Dl_info info = {0};
    for (int i = 0; p3s_real_names[i].name; i++) {
        const struct p3s_real_name *n = &p3s_real_names[i];
        void *inner = look(library, n->name), *outer = dlsym(RTLD_NEXT, n->name + 1);
        *(void **)((char *)&p3s_real + n->offset) = inner;
        if (!outer || ours(outer))
            outer = look(library, n->name + 1);
        *(void **)((char *)&p3s_next + n->offset) = outer ? outer : inner;
    }
    resolved_mpi = init != NULL;
    if (init && dladdr(init, &info))
        p3s_mpi_base = (uintptr_t)info.dli_fbase;
    snprintf(path, path_bytes, "%s", info.dli_fname ? info.dli_fname : "?");
    void *openmpi = look_data(library, "ompi_mpi_comm_world");
#ifdef OPEN_MPI
    p3s_mpi.comm_world = (MPI_Comm)openmpi;
    p3s_mpi.comm_self = (MPI_Comm)look_data(library, "ompi_mpi_comm_self");
    p3s_mpi.comm_null = (MPI_Comm)look_data(library, "ompi_mpi_comm_null");
    p3s_mpi.request_null = (MPI_Request)look_data(library, "ompi_request_null");
    p3s_mpi.type_null = (MPI_Datatype)look_data(library, "ompi_mpi_datatype_null");
    p3s_mpi.byte = (MPI_Datatype)look_data(library, "ompi_mpi_byte");
    p3s_mpi.message_no_proc = (MPI_Message)look_data(library, "ompi_message_no_proc");
    return init && openmpi;
#else
    p3s_mpi = (struct p3s_handles){MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL,
        MPI_REQUEST_NULL, MPI_DATATYPE_NULL, MPI_BYTE, MPI_MESSAGE_NO_PROC};
    const char *base = strrchr(path, '/');
    return init && !openmpi && !strstr(base ? base : path, "mpi_abi");
#endif
}
#else
/* What the linker has found: nothing is searched in a program that has MPI in itself. The text lets
 * P3S see that the tracer is in there, too. */
static bool find_mpi(void *ra, char *path, size_t path_bytes)
{
    static const char mark[] __attribute__((used)) = P3S_ARCHIVE_MARK;
    (void)ra;
    for (int i = 0; p3s_real_names[i].name; i++) {
        const struct p3s_real_name *n = &p3s_real_names[i];
        *(const void **)((char *)&p3s_real + n->offset) = n->inner;
        *(const void **)((char *)&p3s_next + n->offset) = n->outer;
    }
    p3s_mpi = (struct p3s_handles){MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL,
        MPI_REQUEST_NULL, MPI_DATATYPE_NULL, MPI_BYTE, MPI_MESSAGE_NO_PROC};
    snprintf(path, path_bytes, "%s", mark);
    return resolved_mpi = true;
}
#endif

static void thread_end(void *cache)
{
    p3s_site_thread_end(cache);
    p3s_counters_close(&p3s_self);
}

/* ---- entering and leaving ------------------------------------------------------------------ */

/* Into *rc what MPI_Init must return if false: the MPI of the program does not fit. */
static bool right_mpi(void *ra, int *rc)
{
    char path[1024];
    const char *directory = secure_getenv("P3S_TRACE_DIR");
    if (find_mpi(ra, path, sizeof path))
        return true;
    /* Handles of another family do not fit the wrappers: refuse before anything breaks. */
    if (directory) {
        char marker[4096];
        snprintf(marker, sizeof marker, "%s/other-mpi", directory);
        int fd = open(marker, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (fd >= 0) {
            if (write(fd, path, strlen(path)) < 0) {
                /* The message below says it too. */
            }
            close(fd);
            fprintf(stderr, "p3s: the program uses the MPI library %s, the tracer was built for "
                    "another MPI; MPI_Init fails\n", path);
        }
    }
    *rc = MPI_ERR_OTHER;
    return false;
}

int p3s_init_enter(struct p3s_here *h, void *ra, void *fa, int *rc)
{
    *h = (struct p3s_here){.ra = ra, .fa = fa, .op = P3S_OP_Init};
    if (p3s_nested(fa))
        return P3S_FORWARD;     /* MPI_Init of another tool calls PMPI_Init */
    if (!right_mpi(ra, rc))
        return P3S_REFUSE;
    p3s_go_in(ra, fa);
    h->work = p3s_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    h->t0_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    return P3S_RECORD;
}

static void library_version(char *into, size_t bytes)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    if (!p3s_real.Get_library_version || PMPI_Get_library_version(text, &n) != MPI_SUCCESS)
        return;
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\t')
            *c = ' ';
    snprintf(into, bytes, "%s", text);
}

static bool open_store(const char *directory, const struct p3s_world *world, int64_t now_ns)
{
    struct p3s_header facts = {.init_monotonic_ns = now_ns, .rank = world->rank,
                               .size = world->size};
    const char *limit = getenv("P3S_LIMIT"), *run = getenv("P3S_RUN_ID");
    const char *launched = getenv("P3S_LAUNCHED"), *program = getenv("P3S_PROGRAM");
    int level = MPI_THREAD_SINGLE;
    facts.init_realtime_ns = p3s_clock_ns(CLOCK_REALTIME);
    facts.limit_bytes = limit ? strtoull(limit, NULL, 10) : 0;
    facts.run = run && *run ? p3s_hash_text(0, run, 0) : 0;
    facts.launched = launched ? (uint32_t)strtoul(launched, NULL, 10) : 0;
    facts.program = program ? (uint32_t)strtoul(program, NULL, 10) : 0;
#ifdef OPEN_MPI
    strcpy(facts.family, "openmpi");
#else
    strcpy(facts.family, "mpich");
#endif
    library_version(facts.mpi_version, sizeof facts.mpi_version);
    p3s_clock_choose(directory, &facts);
    /* A session has a level of its own, and another one may follow with a higher one. */
    p3s_threaded = world->sessions || PMPI_Query_thread(&level) != MPI_SUCCESS ||
                   level >= MPI_THREAD_SERIALIZED;      /* one in MPI, others may read files */
    p3s_world_rank = facts.rank;
    return p3s_store_open(directory, &facts);
}

/* The file and its numbers are the parent's: what a child does is not recorded, not even an
 * MPI_Finalize on its way out. */
static void in_child(void) { p3s_active = 0; }

/* Programs that a rank starts from now on are no ranks, and may be another user's or another
 * processor's: they do not get the tracer. Until here they do, as a script may start the rank.
 * What stays is not removed but replaced: that moves no other variable under a thread that reads. */
static void forget_children(void)
{
#ifndef P3S_ARCHIVE
    const char *list = getenv("LD_PRELOAD"), *end;
    char *kept = list ? malloc(strlen(list) + 1) : NULL;
    size_t length = 0;
    Dl_info self;
    if (kept && dladdr((void *)p3s_late, &self) && self.dli_fname) {
        for (; *list; list = end + (*end != '\0')) {
            end = list + strcspn(list, ": ");
            size_t word = (size_t)(end - list);
            if (!word || (word == strlen(self.dli_fname) && !memcmp(list, self.dli_fname, word)))
                continue;
            if (length)
                kept[length++] = ':';
            memcpy(kept + length, list, word);
            length += word;
        }
        kept[length] = '\0';
        setenv("LD_PRELOAD", kept, 1);
    }
    free(kept);
#endif
}

static void begin_thread(struct p3s_thread *t)
{
    t->known = true;
    t->number = __atomic_fetch_add(&next_thread, 1, __ATOMIC_RELAXED);
    t->last_event = P3S_NO_EVENT;
    t->preempted = p3s_preempted();
    p3s_pool_kind(P3S_THREAD_CALLER);
    if (p3s_counters) {
        p3s_counters_open(t);
        p3s_counters_read(t, t->counter_at_return);
    }
}

bool p3s_begin(struct p3s_here *h, const struct p3s_world *world)
{
    const char *directory = secure_getenv("P3S_TRACE_DIR");  /* nothing with another's rights */
    struct p3s_thread *t = &p3s_self;
    bool wanted = world && directory && *directory && !p3s_header;
    if (wanted && ended)
        p3s_warn("MPI begins a second time, which is not recorded", EBUSY);
    wanted = wanted && !ended && open_store(directory, world, h->t1_ns);
    if (wanted) {
        p3s_epoch_ns = h->t1_ns;
        pthread_key_create(&thread_key, thread_end);
        pthread_atfork(NULL, NULL, in_child);
        forget_children();
        p3s_end_begin();
        begin_thread(t);
        if (p3s_work_source != P3S_WORK_CPU)
            h->work = 0;        /* what was before MPI_Init is not known in this clock */
        p3s_io_begin();
        p3s_device_look();
        p3s_stack_begin();
        p3s_stack(h->ra, h->fa);
        p3s_active = 1;
        if (world->sessions)
            p3s_comm_of_sessions(world);
        p3s_simple(h, p3s_world_id(), 0);
        p3s_memory_begin();
        if (p3s_teams)
            p3s_team_forget();
    }
    t->depth = 0;
    t->carried_work = 0;
    t->left_ns = h->t1_ns;
    t->wall_at_return = 0;
    t->work_at_return = p3s_header ? p3s_work_now() : 0;
    return wanted;
}

void p3s_init_done(struct p3s_here *h, int rc)
{
    struct p3s_world world = {0};
    h->t1_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    if (rc == MPI_SUCCESS) p3s_session_world_model();
    bool there = rc == MPI_SUCCESS && !p3s_header && !p3s_spawned() &&
                 PMPI_Comm_rank(p3s_mpi.comm_world, &world.rank) == MPI_SUCCESS &&
                 PMPI_Comm_size(p3s_mpi.comm_world, &world.size) == MPI_SUCCESS &&
                 PMPI_Comm_group(p3s_mpi.comm_world, &p3s_world_group) == MPI_SUCCESS;
    p3s_begin(h, there ? &world : NULL);
}

void p3s_late(void *ra)
{
    char path[1024];
    find_mpi(ra, path, sizeof path);
}

/* Reading the CPU clock is a system call of half a microsecond. What took less than SHORT_NS, a
 * wrapper or the way from one to the next, cannot have waited longer than that: its wall time stands
 * for its CPU time. */
#define SHORT_NS 1000

/* The work clock on entry; returns what the program worked since the last wrapper of the thread. */
static int64_t clock_on_entry(struct p3s_here *h, struct p3s_thread *t)
{
    int64_t now = 0, read_ns = p3s_clock_cost;
    h->clock_at_ns = 0;
    if (p3s_work_source == P3S_WORK_WALL)
        return 0;               /* read with the time of the call */
    if (!p3s_instructions)
        now = p3s_clock_ns(CLOCK_MONOTONIC);
    if (p3s_work_source == P3S_WORK_CPU)
        read_ns += 2 * p3s_wall_cost;   /* here and at the return */
    h->entry_ns = now;
    if (t->wall_at_return && now - t->wall_at_return < SHORT_NS && !p3s_teams) {
        h->clock_at_ns = now;
        h->clock = t->work_at_return + (now - t->wall_at_return);
        return now - t->wall_at_return - p3s_wall_cost;
    }
    h->clock = p3s_work_now();
    return h->clock - t->work_at_return - read_ns;
}

bool p3s_enter(struct p3s_here *h, uint32_t op, void *ra, void *fa)
{
    struct p3s_thread *t = &p3s_self;
    if (!resolved_mpi)
        p3s_late(ra);
    if (!p3s_active || (t->depth && p3s_nested(fa)))
        return false;
    int64_t work = clock_on_entry(h, t);
    if (!p3s_gate(ra, fa))
        return false;
    bool first = !t->known;
    if (__builtin_expect(first, 0))
        begin_thread(t);
    h->ra = ra;
    h->fa = fa;
    h->op = op;
    h->recorded = false;
    h->numbers = 0;
    h->memory = 0;
    if (!__atomic_load_n(&p3s_op_known[op], __ATOMIC_RELAXED)) {
        /* Named before the call: if the rank dies inside, the file says where. */
        p3s_hold();
        p3s_put_op(op);
        p3s_let_go();
    }
    if (p3s_counters) {
        p3s_counters_read(t, h->counter);
        for (int i = 0; i < p3s_counters; i++)
            h->counter[i] += t->carried_counter[i] - t->counter_at_return[i];
    }
    __atomic_store_n(&p3s_header->in_call, op + 1, __ATOMIC_RELAXED);
    h->t1_ns = h->t0_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    if (p3s_work_source == P3S_WORK_WALL) {
        h->clock = h->t0_ns;
        h->entry_ns = p3s_clock_cost;
        work = h->clock - t->work_at_return - p3s_clock_cost;
    } else {
        h->entry_ns = h->t0_ns - h->entry_ns;
    }
    h->clock_at_ns = h->clock_at_ns ? h->clock_at_ns : h->t0_ns;
    work = first || work < 0 ? 0 : work;
    if (__builtin_expect(p3s_teams, 0))
        work = p3s_team_work(h, work);
    h->work = t->carried_work + work;
    if (__builtin_expect(p3s_io_pending, 0)) {
        p3s_io_flush();
        h->t1_ns = h->t0_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    }
    return true;
}

void p3s_return(struct p3s_here *h)
{
    h->t1_ns = p3s_clock_ns(CLOCK_MONOTONIC);
}

/* A part of a call in the tracer, in wall time, or 0 where the thread has lost its core in it: how
 * long others had it says nothing of the tracer. That is seen only of long parts, those during
 * which another one can have run, as looking is a system call. */
#define LONG_NS 100000

static int64_t in_tracer(int64_t ns)
{
    if (__builtin_expect(ns < LONG_NS, 1))
        return ns;
    uint64_t before = p3s_self.preempted;
    p3s_self.preempted = p3s_preempted();
    return p3s_self.preempted > before ? 0 : ns;
}

static int64_t clock_at_return(const struct p3s_here *h)
{
    if (p3s_instructions)
        return p3s_work_now();
    int64_t now = p3s_clock_ns(CLOCK_MONOTONIC);
    int64_t tracer_ns = in_tracer(now - h->t1_ns) + in_tracer(h->entry_ns);
    bool read_cpu = p3s_work_source == P3S_WORK_CPU && now - h->clock_at_ns >= SHORT_NS;
    tracer_ns += read_cpu ? p3s_clock_cost : 0;
    if (p3s_header && __builtin_expect(p3s_threaded, 0))
        __atomic_fetch_add(&p3s_header->tracer_ns, tracer_ns, __ATOMIC_RELAXED);
    else if (p3s_header)
        p3s_header->tracer_ns += tracer_ns;
    if (p3s_work_source == P3S_WORK_WALL)
        return now;
    if (p3s_work_source == P3S_WORK_INSTRUCTIONS)
        return p3s_work_now();
    int64_t clock = read_cpu ? p3s_work_now() : h->clock + (now - h->clock_at_ns);
    p3s_self.wall_at_return = read_cpu ? p3s_clock_ns(CLOCK_MONOTONIC) : now;
    return clock;
}

void p3s_leave(struct p3s_here *h)
{
    struct p3s_thread *t = &p3s_self;
    if (p3s_header)
        __atomic_store_n(&p3s_header->in_call, 0, __ATOMIC_RELAXED);
    t->carried_work = h->recorded ? 0 : h->work;
    t->left_ns = h->t1_ns;
    if (__builtin_expect(p3s_teams, 0))
        p3s_team_leave(h);
    if (__builtin_expect(t->number && t->sites, 0) && !pthread_getspecific(thread_key))
        pthread_setspecific(thread_key, t->sites);
    if (p3s_counters) {
        for (int i = 0; i < p3s_counters; i++)
            t->carried_counter[i] = h->recorded ? 0 : h->counter[i];
        p3s_counters_read(t, t->counter_at_return);
    }
    t->work_at_return = clock_at_return(h);
    __atomic_signal_fence(__ATOMIC_RELEASE);
    t->depth = 0;
}

void p3s_finalize(struct p3s_here *h)
{
    p3s_simple(h, p3s_world_id(), 0);
    p3s_hold();
    p3s_memory_end();
    p3s_store_close();
    p3s_active = 0;
    ended = true;
    p3s_let_go();
    PMPI_Group_free(&p3s_world_group);
}

/* A library that gives up because another rank is gone may end its own rank by MPI_Abort: that
 * is no abort of the program's. */
static bool in_the_library(void *ra)
{
    Dl_info info;
    if (!dladdr(ra, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return (uintptr_t)info.dli_fbase == p3s_mpi_base ||
           !strncmp(slash ? slash + 1 : info.dli_fname, "mca_", 4);
}

void p3s_aborting(int code, void *ra)
{
    if (!p3s_active || in_the_library(ra) || p3s_end(code, 1))
        return;
    p3s_header->abort_code = code;
    p3s_header->flags |= P3S_FLAG_ABORT;
    /* Some return before their launcher ends the rank: what the rank still does is no part of
     * the program, and the capture must not be closed as if all were well. */
    p3s_active = 0;
}
