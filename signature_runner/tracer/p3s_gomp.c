/* Programs built for libgomp: its entries are interposed. Region, tasks and waits go on to what the
 * caller would have reached without us, which may be LLVM's runtime too: that one tells itself what
 * happens (p3s_ompt.c), and only loops are counted here. */
#include "p3s_gomp.h"
#include "p3s_team.h"
#include "p3s_inside.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parameters are integers and pointers: what is passed on beyond those of an entry is not looked at. */
typedef long any;
typedef any (*entry)();

#define FIELD(name, ...) entry name;
#define NAME(name, ...) "GOMP_" #name,
#define KMPC_NAME(name) "__kmpc_" #name,

static const char *const names[] = {LOOPS(NAME) ANY_LOOPS(NAME) PARALLELS(NAME) STARTS(NAME)
                                    BARRIERS(NAME) WAITS(NAME) OTHERS(NAME)
                                    STATIC_INITS(KMPC_NAME) DISPATCH_INITS(KMPC_NAME)};
#define ENTRIES (sizeof names / sizeof *names)

struct gomp {                   /* the entries of one runtime, in the order of the names */
    LOOPS(FIELD) ANY_LOOPS(FIELD) PARALLELS(FIELD) STARTS(FIELD) BARRIERS(FIELD) WAITS(FIELD)
    OTHERS(FIELD) STATIC_INITS(FIELD) DISPATCH_INITS(FIELD)
    int (*team_size)(void);
    void (*schedule)(int *kind, int *chunk);
    void *library;
    bool llvm;                  /* its regions come by OMPT, unless that is switched off */
    struct gomp *next;
};

/* ---- the runtime behind a call -------------------------------------------------------------- */

static struct gomp *runtimes;
static struct gomp *last;       /* that was found */
static pthread_mutex_t runtimes_lock = PTHREAD_MUTEX_INITIALIZER;

static bool ours(const void *address)
{
    Dl_info info, self;
    return dladdr(address, &info) && dladdr((void *)ours, &self) &&
           info.dli_fbase == self.dli_fbase;
}

/* The runtime of a library: its own entry, not ours that stands before it. */
static void *entry_in(const char *file, void **library)
{
    void *known = NULL;
    *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (*library)
        known = dlsym(*library, "GOMP_barrier");
    return known && !ours(known) ? known : NULL;
}

struct search { void *library, *known; };

static int in_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *s = argument;
    (void)size;
    if (!s->known && info->dlpi_name && *info->dlpi_name)
        s->known = entry_in(info->dlpi_name, &s->library);
    return s->known != NULL;
}

/* A program may hold several runtimes, each for some of its libraries (Python packages bring their
 * own): as the loader would have, first what is visible to all, then what the caller brings. The
 * caller need not be who is returned to, if the call was its last: then the runtime of the region
 * that the thread is in, or any. */
static struct gomp *find(void *ra)
{
    Dl_info info;
    struct p3s_team *team = p3s_self.body.team;
    struct search s = {RTLD_NEXT, dlsym(RTLD_NEXT, "GOMP_barrier")};
    if (!s.known && dladdr(ra, &info) && info.dli_fname && !ours(ra))
        s.known = entry_in(info.dli_fname, &s.library);
    if (!s.known && (team ? team->runtime : last))
        return team ? team->runtime : last;
    if (!s.known)
        dl_iterate_phdr(in_module, &s);
    if (!s.known)
        return NULL;
    for (struct gomp *g = runtimes; g; g = g->next)
        if (g->barrier == (entry)s.known)
            return g;
    struct gomp *g = calloc(1, sizeof *g);
    for (size_t i = 0; g && i < ENTRIES; i++)
        ((entry *)g)[i] = (entry)dlsym(s.library, names[i]);
    if (!g)
        return NULL;
    g->library = s.library;
    g->team_size = (int (*)(void))dlsym(s.library, "omp_get_num_threads");
    g->schedule = (void (*)(int *, int *))dlsym(s.library, "omp_get_schedule");
    g->llvm = dlsym(s.library, "__kmpc_fork_call") != NULL;
    g->next = runtimes;
    if (g->llvm && g->team_size)
        g->team_size();         /* now it has begun, and has told whether it has OMPT */
    return runtimes = g;
}

#define SITES 256

static struct { void *ra; struct gomp *gomp; } sites[SITES];

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static struct gomp *gomp_of(void *ra)
{
    size_t at = ((uintptr_t)ra >> 2 ^ (uintptr_t)ra >> 12) % SITES;
    if (__builtin_expect(__atomic_load_n(&sites[at].ra, __ATOMIC_ACQUIRE) == ra, 1)) {
        struct gomp *g = __atomic_load_n(&sites[at].gomp, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&sites[at].ra, __ATOMIC_ACQUIRE) == ra)
            return g;
    }
    /* The last thing that a region or a task does: it returns to what runs it. */
    bool from_here = (const char *)ra >= __ehdr_start && (const char *)ra < _end;
    struct p3s_team *team = p3s_self.body.team;
    if (from_here && team && team->runtime)
        return team->runtime;
    pthread_mutex_lock(&runtimes_lock);
    struct gomp *g = find(ra);
    __atomic_store_n(&sites[at].ra, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&sites[at].gomp, g, __ATOMIC_RELEASE);
    __atomic_store_n(&sites[at].ra, g && !from_here ? ra : NULL, __ATOMIC_RELEASE);
    last = g ? g : last;
    pthread_mutex_unlock(&runtimes_lock);
    return g;
}

static bool tells_itself(const struct gomp *g) { return g->llvm && p3s_ompt; }

/* Is the calling thread in a region that is followed here? */
static bool followed(void) { return p3s_self.body.team && !p3s_ompt; }

/* In one whose worksharing constructs are counted here? */
static bool counted(void)
{
    struct p3s_team *team = p3s_self.body.team;
    return team && (!p3s_ompt || team->entries);
}

uint32_t p3s_team_size(void)
{
    return last && last->team_size ? (uint32_t)last->team_size() : 1;
}

bool p3s_openmp_there(void) { return last || p3s_ompt; }

void *p3s_openmp(const char *name)
{
    void *library = last ? last->library : p3s_ompt ? RTLD_NEXT : NULL;
    return library ? dlsym(library, name) : NULL;
}

const char *p3s_openmp_name(char *path, size_t bytes)
{
    Dl_info info;
    void *function = p3s_openmp("omp_get_max_threads");
    *path = '\0';
    if (function && dladdr(function, &info) && info.dli_fname)
        snprintf(path, bytes, "%s", info.dli_fname);
    if (*p3s_ompt_version())
        return p3s_ompt_version();
    return !last ? NULL : last->llvm ? "LLVM OpenMP" : "libgomp";
}

/* ---- loops ---------------------------------------------------------------------------------- */

enum { N = -1, S = P3S_STATIC, D = P3S_DYNAMIC, C = P3S_SECTIONS, R = -2 };
#define STATIC_SCHEDULE 1       /* omp_sched_static, and libgomp's own number of it */
#define SCHEDULE_BITS 0xff

/* schedule(runtime) is what the environment says, or the program. */
static int resolved(const struct gomp *g, int kind)
{
    int schedule = 0, chunk;
    if (kind != R)
        return kind;
    if (g->schedule)
        g->schedule(&schedule, &chunk);
    return (schedule & SCHEDULE_BITS) == STATIC_SCHEDULE ? S : D;
}

static void count_loop(const struct gomp *g, int kind)
{
    if (p3s_self.body.first && kind != N)
        p3s_count(resolved(g, kind));
}

static int kind_of(any schedule)
{
    int kind = (int)(schedule & SCHEDULE_BITS);
    return kind == 0 ? R : kind == STATIC_SCHEDULE ? S : D;
}

#define TEN any a0, any a1, any a2, any a3, any a4, any a5, any a6, any a7, any a8, any a9
#define TEN_AND(more) TEN, more
#define PASS a0, a1, a2, a3, a4, a5, a6, a7, a8, a9
#define EXPORT(name, ...)                                                                         \
    P3S_EXPORT any p3s_gomp_##name(__VA_ARGS__) __asm__("GOMP_" #name);                           \
    any p3s_gomp_##name(__VA_ARGS__)

#define LOOP(name, kind)                                                                          \
    EXPORT(name, TEN)                                                                             \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        if (p3s_self.body.team)                                                                   \
            count_loop(g, kind);                                                                  \
        return g->name(PASS);                                                                     \
    }
#define ANY_LOOP(name, number) LOOP(name, kind_of(a##number))
LOOPS(LOOP)
ANY_LOOPS(ANY_LOOP)

#define KMPC(name, kind)                                                                          \
    P3S_EXPORT any p3s_kmpc_##name(TEN) __asm__("__kmpc_" #name);                                 \
    any p3s_kmpc_##name(TEN)                                                                      \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        if (p3s_self.body.team)                                                                   \
            count_loop(g, kind);                                                                  \
        return g->name(PASS);                                                                     \
    }
#define SECTIONS_FLAG 0x400     /* KMP_IDENT_WORK_SECTIONS: sections are such a loop too */
#define STATIC_INIT(name) KMPC(name, ((const int *)a0)[1] & SECTIONS_FLAG ? C : S)
#define DISPATCH_INIT(name) KMPC(name, dispatched(a2))

/* enum sched_type of LLVM's runtime, without its bits for monotonic and nonmonotonic. */
static int dispatched(any schedule)
{
    switch (schedule & 0xffffff) {
    case 33: case 34: case 40: case 65: case 66:
        return S;
    case 37: case 69:
        return R;
    default:
        return D;
    }
}

STATIC_INITS(STATIC_INIT)
DISPATCH_INITS(DISPATCH_INIT)

/* ---- regions -------------------------------------------------------------------------------- */

struct region {
    void *reductions;           /* libgomp looks for them where the data begin */
    struct p3s_team team;
    const struct gomp *gomp;
    int kind;                   /* of the loop that is one with it */
};

static void run(void *data)
{
    struct region *r = data;
    p3s_body_begin(&r->team, r->team.owner == &p3s_self);
    count_loop(r->gomp, r->kind);
    r->team.run(r->team.data);
    p3s_body_end();
}

/* False if the region is not followed here. */
static bool begin(struct region *r, const struct gomp *g, int kind, any function, any data)
{
    if (!p3s_active || tells_itself(g)) {
        p3s_self.loop_ahead = p3s_active && kind != N ? resolved(g, kind) : 0;
        p3s_self.entries_ahead = p3s_active;
        return false;
    }
    r->gomp = g;
    r->kind = kind;
    r->team.run = (void (*)(void *))function;
    r->team.data = (void *)data;
    r->reductions = NULL;
    p3s_region_begin(&r->team);
    r->team.runtime = (struct gomp *)g;
    return true;
}

#define PARALLEL(name, loop)                                                                      \
    EXPORT(name, TEN)                                                                             \
    {                                                                                             \
        struct region r;                                                                          \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        if (!begin(&r, g, loop, a0, a1))                                                          \
            return g->name(PASS);                                                                 \
        g->name(run, &r, a2, a3, a4, a5, a6, a7, a8, a9);                                         \
        p3s_region_end(&r.team);                                                                  \
        return 0;                                                                                 \
    }
PARALLELS(PARALLEL)

EXPORT(parallel_reductions, TEN)
{
    struct region r;
    const struct gomp *g = gomp_of(P3S_RA);
    if (!begin(&r, g, N, a0, a1))
        return g->parallel_reductions(PASS);
    r.reductions = *(void **)a1;
    any threads = g->parallel_reductions(run, &r, a2, a3);
    p3s_region_end(&r.team);
    return threads;
}

/* The region lives until parallel_end: the threads of the team look into it. */
#define START(name, loop)                                                                         \
    EXPORT(name, TEN)                                                                             \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        struct region *r = aligned_alloc(64, sizeof *r);                                          \
        if (!r || !begin(r, g, loop, a0, a1)) {                                                   \
            free(r);                                                                              \
            return g->name(PASS);                                                                 \
        }                                                                                         \
        r->team.started = true;                                                                   \
        g->name(run, r, a2, a3, a4, a5, a6, a7, a8, a9);                                          \
        p3s_body_begin(&r->team, true);                                                           \
        count_loop(g, loop);                                                                      \
        return 0;                                                                                 \
    }
STARTS(START)

EXPORT(parallel_end, void)
{
    const struct gomp *g = gomp_of(P3S_RA);
    struct p3s_team *team = p3s_self.body.team;
    bool ours = team && team->started && p3s_self.body.first && !tells_itself(g);
    if (ours)
        p3s_body_end();
    any result = g->parallel_end();
    if (ours) {
        p3s_region_end(team);
        free((char *)team - offsetof(struct region, team));
    }
    return result;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* A thread that waits in a barrier or for tasks may be given tasks to run: see task(). */
#define WAIT(name)                                                                                \
    EXPORT(name, TEN)                                                                             \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        bool paused = followed() && p3s_pause();                                                  \
        any result = g->name(PASS);                                                               \
        if (paused)                                                                               \
            p3s_resume();                                                                         \
        return result;                                                                            \
    }
#define BARRIER(name) COUNTED(name, counted(), p3s_count_once(P3S_BARRIERS))
#define COUNTED(name, when, count)                                                                \
    EXPORT(name, TEN)                                                                             \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        bool paused = followed() && p3s_pause();                                                  \
        if (when)                                                                                 \
            count;                                                                                \
        any result = g->name(PASS);                                                               \
        if (paused)                                                                               \
            p3s_resume();                                                                         \
        return result;                                                                            \
    }
BARRIERS(BARRIER)
WAITS(WAIT)
COUNTED(single_copy_start, counted(), p3s_count_once(P3S_SINGLES))
COUNTED(critical_start, followed(), p3s_count(P3S_CRITICALS))
COUNTED(critical_name_start, followed(), p3s_count(P3S_CRITICALS))

#define SHARED(name, what)                                                                        \
    EXPORT(name, TEN)                                                                             \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        if (counted())                                                                            \
            p3s_count_once(what);                                                                 \
        return g->name(PASS);                                                                     \
    }
SHARED(single_start, P3S_SINGLES)
SHARED(sections_start, P3S_SECTIONS)
SHARED(sections2_start, P3S_SECTIONS)

/* ---- tasks ---------------------------------------------------------------------------------- */

/* libgomp copies the data of a task; before them goes what must be run with them. Into the data of
 * taskloop it writes the first iteration and the one after the last, and reads a third word. */
struct task {
    any bounds[3];
    void (*run)(void *);
    void *data;                 /* of the caller, to be copied */
    void (*copy)(void *, void *);
    size_t bytes, at;           /* of the copy: how many, and how far behind the beginning of this */
    bool loop;
};

static void copy_task(void *to, void *from)
{
    struct task *t = from;
    char *data = (char *)to + t->at;
    memcpy(to, from, sizeof *t);
    if (t->copy)
        t->copy(data, t->data);
    else if (t->bytes)
        memcpy(data, t->data, t->bytes);
}

static void run_task(void *at)
{
    struct task *t = at;
    char *data = (char *)at + t->at;
    bool waits = p3s_self.body.team && !p3s_self.body.active;
    if (t->loop)
        memcpy(data, t->bounds, 2 * sizeof *t->bounds);
    if (p3s_self.body.team)
        p3s_count(P3S_TASKS);
    if (waits)
        p3s_resume();
    t->run(data);
    if (waits)
        p3s_pause();
    if (p3s_self.body.ended)
        p3s_publish();
}

static struct task task_of(bool loop, any run, any data, any copy, any bytes, any align)
{
    size_t to = align > 1 ? (size_t)align : 1, at = (sizeof(struct task) + to - 1) / to * to;
    struct task t = {.run = (void (*)(void *))run, .data = (void *)data, .loop = loop,
                     .copy = (void (*)(void *, void *))copy, .bytes = (size_t)bytes, .at = at};
    /* Only taskloop's data have a third word, and not all of them. */
    if (loop)
        memcpy(t.bounds, t.data, t.bytes < sizeof t.bounds ? t.bytes : sizeof t.bounds);
    return t;
}

static any larger(any align)
{
    return align > (any)_Alignof(struct task) ? align : (any)_Alignof(struct task);
}

#define DETACHED (1 << 13)      /* GOMP_TASK_FLAG_DETACH: the runtime writes into the caller's data */

EXPORT(task, TEN)
{
    const struct gomp *g = gomp_of(P3S_RA);
    if (!followed() || (a6 & DETACHED)) {
        if (followed())
            p3s_count(P3S_TASKS);
        return g->task(PASS);
    }
    struct task t = task_of(false, a0, a1, a2, a3, a4);
    return g->task(run_task, &t, copy_task, (any)t.at + a3, larger(a4), a5, a6, a7, a8, a9);
}

/* Arguments after the tenth: start, end and step of the loop. */
#define TASKLOOP(name)                                                                            \
    EXPORT(name, TEN_AND(any a10))                                                                \
    {                                                                                             \
        const struct gomp *g = gomp_of(P3S_RA);                                                   \
        if (!followed())                                                                          \
            return g->name(PASS, a10);                                                            \
        struct task t = task_of(true, a0, a1, a2, a3, a4);                                        \
        return g->name(run_task, &t, copy_task, (any)t.at + a3, larger(a4), a5, a6, a7, a8, a9,   \
                       a10);                                                                      \
    }
TASKLOOP(taskloop)
TASKLOOP(taskloop_ull)
