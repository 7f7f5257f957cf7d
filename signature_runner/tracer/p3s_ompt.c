/* A tool of OMPT (OpenMP 5.x, chapter 19; since 5.2 chapter 20): runtimes that have it, LLVM's and
 * Intel's, tell when regions, threads, tasks and waits begin and end. Types and numbers are declared
 * here because few systems have omp-tools.h. */
#include "p3s_team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

union data { uint64_t value; void *ptr; };

enum { THREAD_BEGIN = 1, PARALLEL_BEGIN = 3, PARALLEL_END = 4, TASK_CREATE = 5, TASK_SCHEDULE = 6,
       IMPLICIT_TASK = 7, WORK = 20, SYNC_REGION = 23, MUTEX_ACQUIRE = 26, MUTEX_ACQUIRED = 27 };
enum { SCOPE_BEGIN = 1, SCOPE_END = 2 };
enum { THREAD_INITIAL = 1, THREAD_WORKER = 2 };
enum { TASK_INITIAL = 1, TASK_EXPLICIT = 4 };
enum { WORK_SINGLE_EXECUTOR = 3, WORK_SINGLE_OTHER = 4 };
enum { BARRIER = 1, BARRIER_IMPLICIT = 2, BARRIER_EXPLICIT = 3, BARRIER_IMPLICIT_WORKSHARE = 8,
       BARRIER_IMPLICIT_PARALLEL = 9 };
enum { MUTEX_CRITICAL = 5, MUTEX_ORDERED = 7 };

bool p3s_ompt;
static char version[64];

const char *p3s_ompt_version(void) { return version; }

/* What a task's data say: that it waits. */
#define WAITING 1

/* ---- threads and regions -------------------------------------------------------------------- */

static void thread_begin(int type, union data *thread)
{
    if (type != THREAD_INITIAL)
        p3s_pool_kind(type == THREAD_WORKER ? P3S_THREAD_TEAM : P3S_THREAD_RUNTIME);
}

static void parallel_begin(union data *task, const void *frame, union data *parallel,
                           unsigned requested, int flags, const void *ra)
{
    struct p3s_thread *t = &p3s_self;
    int loop = t->loop_ahead;
    bool entries = t->entries_ahead;
    parallel->ptr = p3s_active ? aligned_alloc(64, sizeof(struct p3s_team)) : NULL;
    t->loop_ahead = 0;
    t->entries_ahead = false;
    if (!parallel->ptr)
        return;
    struct p3s_team *team = parallel->ptr;
    p3s_region_begin(team);
    team->entries = entries;
    if (loop)
        team->counts[loop]++;
}

static void parallel_end(union data *parallel, union data *task, int flags, const void *ra)
{
    struct p3s_team *team = parallel->ptr;
    if (!team)
        return;
    /* A barrier of the program's or that of the join: older runtimes tell both alike. A team of one
     * thread has none at its end. */
    if (!team->join_told && !team->entries && team->size > 1 && team->counts[P3S_BARRIERS])
        team->counts[P3S_BARRIERS]--;
    p3s_region_end(team);
    free(team);
    parallel->ptr = NULL;
}

/* Threads other than the first hear of the end when their next region begins, or never; what they
 * did is known from the barrier before it. */
static void implicit_task(int point, union data *parallel, union data *task, unsigned threads,
                          unsigned index, int flags)
{
    struct p3s_thread *t = &p3s_self;
    if (flags & TASK_INITIAL)
        return;
    task->value = 0;
    if (point == SCOPE_BEGIN) {
        struct p3s_team *team = parallel ? parallel->ptr : NULL;
        if (!team)
            return;
        p3s_body_begin(team, index == 0);
        /* All say the same; the first thread may come last. */
        __atomic_store_n(&team->size, threads, __ATOMIC_RELAXED);
    } else if (t->body.team && t->body.first && t->body.team->size == 1) {
        p3s_body_end();
    } else {
        if (t->body.active)
            t->body.active = false;
        t->body.team = NULL;
    }
}

/* ---- waiting -------------------------------------------------------------------------------- */

static bool is_barrier(int kind)
{
    return kind == BARRIER || kind == BARRIER_IMPLICIT || kind == BARRIER_EXPLICIT ||
           kind == BARRIER_IMPLICIT_WORKSHARE;
}

static void sync_region(int kind, int point, union data *parallel, union data *task, const void *ra)
{
    struct p3s_body *b = &p3s_self.body;
    if (!b->team)
        return;
    if (point == SCOPE_BEGIN) {
        if (task)
            task->value |= WAITING;
        if (is_barrier(kind) && !b->team->entries)
            p3s_count_once(P3S_BARRIERS);
        if (kind == BARRIER_IMPLICIT_PARALLEL && b->first)
            b->team->join_told = true;
        p3s_pause();
        /* It may be the barrier of the join. */
        if (is_barrier(kind) || kind == BARRIER_IMPLICIT_PARALLEL)
            p3s_publish();
    } else if (point == SCOPE_END) {
        if (task)
            task->value &= ~(uint64_t)WAITING;
        p3s_resume();
    }
}

static bool waited_for(int kind) { return kind == MUTEX_CRITICAL || kind == MUTEX_ORDERED; }

static void mutex_acquire(int kind, unsigned hint, unsigned how, uint64_t id, const void *ra)
{
    if (p3s_self.body.team && waited_for(kind))
        p3s_pause();
}

static void mutex_acquired(int kind, uint64_t id, const void *ra)
{
    if (!p3s_self.body.team || !waited_for(kind))
        return;
    p3s_resume();
    if (kind == MUTEX_CRITICAL)
        p3s_count(P3S_CRITICALS);
}

/* ---- tasks and work ------------------------------------------------------------------------- */

static void task_create(union data *from, const void *frame, union data *task, int flags,
                        int dependences, const void *ra)
{
    if (task)
        task->value = 0;
    if (p3s_self.body.team && flags & TASK_EXPLICIT)
        p3s_count(P3S_TASKS);
}

/* Whether the thread works from here on is up to the task it goes on with. */
static void task_schedule(union data *before, int status, union data *next)
{
    if (!p3s_self.body.team || !next)
        return;
    if (!(next->value & WAITING))
        p3s_resume();
    else if (p3s_pause())
        p3s_publish();          /* it may have been in the barrier of the join */
}

static void work(int type, int point, union data *parallel, union data *task, uint64_t count,
                 const void *ra)
{
    struct p3s_team *team = p3s_self.body.team;
    if (team && !team->entries && point == SCOPE_BEGIN &&
        (type == WORK_SINGLE_EXECUTOR || type == WORK_SINGLE_OTHER))
        p3s_count_once(P3S_SINGLES);
}

/* ---- the tool ------------------------------------------------------------------------------- */

typedef void (*function)(void);

static int initialize(function (*lookup)(const char *), int device, union data *tool)
{
    int (*set)(int, function) = (int (*)(int, function))lookup("ompt_set_callback");
    if (!set)
        return 0;
    static const struct { int event; function told; } events[] = {
        {THREAD_BEGIN, (function)thread_begin}, {PARALLEL_BEGIN, (function)parallel_begin},
        {PARALLEL_END, (function)parallel_end}, {IMPLICIT_TASK, (function)implicit_task},
        {TASK_CREATE, (function)task_create}, {TASK_SCHEDULE, (function)task_schedule},
        {WORK, (function)work}, {SYNC_REGION, (function)sync_region},
        {MUTEX_ACQUIRE, (function)mutex_acquire}, {MUTEX_ACQUIRED, (function)mutex_acquired},
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        set(events[i].event, events[i].told);
    p3s_ompt = true;
    return 1;
}

static void finalize(union data *tool) { p3s_ompt = false; }

struct start_tool {
    int (*initialize)(function (*)(const char *), int, union data *);
    void (*finalize)(union data *);
    union data tool;
};

P3S_EXPORT struct start_tool *ompt_start_tool(unsigned openmp, const char *runtime)
{
    static struct start_tool start = {initialize, finalize, {0}};
    const char *directory = getenv("P3S_TRACE_DIR");
    snprintf(version, sizeof version, "%s", runtime ? runtime : "");
    return directory && *directory ? &start : NULL;
}
