/* The threads of the process: who made them, what they are for, how long they computed. */
#include "p3s_team.h"
#include "p3s_inside.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct p3s_pooled {
    struct p3s_pooled *next;
    void *(*run)(void *);
    void *argument;
    clockid_t clock;
    pid_t tid;
    uint32_t number;
    int kind;
    int32_t calls_as;           /* thread number in its MPI calls, -1 if it makes none */
    bool foreign;               /* made by the MPI library */
    bool alive;
    int64_t cpu_ns, taken_ns;   /* in all, as far as it was looked at; of it taken already */
};

/* Entries of threads that have ended are kept while there are few; the rest is summed up. */
#define MOST_KEPT 256

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct p3s_pooled *pool;
static uint32_t next_number = 1, ended_kept, summed;
static int64_t summed_ns, taken_at_ns;
/* Threads that have ended since it was taken last. Those that begin when no other one is there come
 * after these: of each such group the longest counts. */
static int64_t ended_ns, longest_ended_ns, groups_ns;
static uint32_t living;         /* of kind OTHER */
static pthread_key_t end_key;
static bool off;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;

uint32_t p3s_pool_others;

/* ---- the table; needs pool_lock ------------------------------------------------------------- */

static int64_t look(struct p3s_pooled *p)
{
    struct timespec t;
    if (p->alive && clock_gettime(p->clock, &t) == 0)
        p->cpu_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    int64_t more = p->cpu_ns - p->taken_ns;
    p->taken_ns = p->cpu_ns;
    return more > 0 ? more : 0;
}

static bool is_other(const struct p3s_pooled *p)
{
    return p->kind == P3S_THREAD_OTHER;
}

static void forget(struct p3s_pooled *gone)
{
    struct p3s_pooled **at = &pool;
    while (*at && *at != gone)
        at = &(*at)->next;
    if (*at)
        *at = gone->next;
    summed++;
    summed_ns += gone->cpu_ns;
    free(gone);
}

/* ---- threads begin and end ------------------------------------------------------------------ */

static void thread_ends(void *entry)
{
    struct p3s_pooled *p = entry;
    pthread_mutex_lock(&pool_lock);
    int64_t more = look(p);
    p->alive = false;
    if (is_other(p)) {
        living--;
        ended_ns += more;
        longest_ended_ns = more > longest_ended_ns ? more : longest_ended_ns;
    }
    p3s_self.pooled = NULL;
    if (ended_kept == MOST_KEPT)
        forget(p);
    else
        ended_kept++;
    pthread_mutex_unlock(&pool_lock);
}

/* A child has one thread, and what it does is not recorded; another may have held the lock. */
static void in_child(void)
{
    pthread_mutex_init(&pool_lock, NULL);
    off = true;
}

static void make_key(void)
{
    pthread_key_create(&end_key, thread_ends);
    pthread_atfork(NULL, NULL, in_child);
}

static void enter_pool(struct p3s_pooled *p)
{
    pthread_once(&end_once, make_key);
    p->clock = CLOCK_THREAD_CPUTIME_ID;
    pthread_getcpuclockid(pthread_self(), &p->clock);
    p->tid = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&pool_lock);
    p->number = next_number++;
    p->alive = true;
    p->next = pool;
    pool = p;
    p3s_pool_others++;
    if (!living++) {
        groups_ns += longest_ended_ns;
        longest_ended_ns = 0;
    }
    pthread_mutex_unlock(&pool_lock);
    p3s_self.pooled = p;
    pthread_setspecific(end_key, p);
    p3s_teams = true;
}

static void *begin(void *entry)
{
    struct p3s_pooled *p = entry;
    void *(*run)(void *) = p->run, *argument = p->argument;
    p3s_self.foreign = p->foreign;
    if (p->foreign)
        free(p);
    else
        enter_pool(p);
    return run(argument);
}

typedef int (*creator)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* What the MPI library makes, inside its calls or in threads of its own, is not the program's. */
P3S_EXPORT int p3s_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument) P3S_NAME("pthread_create");
#ifdef P3S_ARCHIVE
int p3s_real_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    __asm__("__real_pthread_create");
#endif

int p3s_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
               void *argument)
{
#ifdef P3S_ARCHIVE
    static const creator real = p3s_real_create;
#else
    static creator real;
    if (!real)
        real = (creator)dlsym(RTLD_NEXT, "pthread_create");
#endif
    struct p3s_pooled *p = off ? NULL : calloc(1, sizeof *p);
    if (!p)
        return real(thread, attributes, run, argument);
    p->run = run;
    p->argument = argument;
    p->calls_as = -1;
    p->foreign = p3s_self.foreign || p3s_self.depth;
    int error = real(thread, attributes, begin, p);
    if (error)
        free(p);
    return error;
}

void p3s_pool_kind(int kind)
{
    struct p3s_pooled *p = p3s_self.pooled;
    if (!p || p->kind == kind || p->kind == P3S_THREAD_RUNTIME)
        return;
    pthread_mutex_lock(&pool_lock);
    p3s_pool_others -= is_other(p);
    living -= is_other(p);
    if (kind == P3S_THREAD_CALLER)
        p->calls_as = (int32_t)p3s_self.number;
    if (kind != P3S_THREAD_CALLER || is_other(p))
        p->kind = kind;
    pthread_mutex_unlock(&pool_lock);
}

/* ---- CPU time between two MPI calls --------------------------------------------------------- */

/* Looking at a thread is a system call. */
static bool too_soon(int64_t now)
{
    return now - taken_at_ns < p3s_patience();
}

void p3s_pool_take(struct p3s_segment *into, int64_t *longest)
{
    int64_t now = p3s_clock_ns(CLOCK_MONOTONIC);
    if (too_soon(now))
        return;
    pthread_mutex_lock(&pool_lock);
    into->others_ns += ended_ns;
    *longest = longest_ended_ns;
    int64_t before = groups_ns;
    ended_ns = longest_ended_ns = groups_ns = 0;
    for (struct p3s_pooled *p = pool; p; p = p->next) {
        int64_t more = p->alive && is_other(p) ? look(p) : 0;
        into->others_ns += more;
        *longest = more > *longest ? more : *longest;
    }
    pthread_mutex_unlock(&pool_lock);
    *longest += before;
    into->longest_other_ns += *longest;
    taken_at_ns = now;
}

void p3s_pool_skip(void)
{
    struct p3s_segment nobody = {0};
    int64_t longest = 0;
    p3s_pool_take(&nobody, &longest);
}

/* ---- definitions ---------------------------------------------------------------------------- */

/* The cores a thread may run on, as "0-3,6"; empty if that is not known. */
static void cores_of(pid_t tid, char *text, size_t bytes)
{
    cpu_set_t set;
    size_t at = 0;
    text[0] = '\0';
    if (sched_getaffinity(tid, sizeof set, &set))
        return;
    for (int i = 0; i < CPU_SETSIZE && at + 16 < bytes; i++) {
        int first = i;
        if (!CPU_ISSET(i, &set))
            continue;
        while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set))
            i++;
        at += (size_t)snprintf(text + at, bytes - at, i > first ? "%s%d-%d" : "%s%d",
                               at ? "," : "", first, i);
    }
}

static void define_thread(uint32_t number, int kind, int32_t calls_as, uint32_t threads, int64_t cpu,
                          pid_t tid)
{
    struct { uint32_t number, kind; int32_t calls_as; uint32_t threads; int64_t cpu_ns; } head = {
        number, (uint32_t)kind, calls_as, threads, cpu};
    char cores[256] = "";
    if (tid >= 0)
        cores_of(tid, cores, sizeof cores);
    p3s_define(P3S_REC_THREAD, &head, sizeof head, cores, strlen(cores));
}

void p3s_pool_define(void)
{
    bool first_there = p3s_self.pooled != NULL;
    if (!p3s_teams)
        return;
    p3s_runtime_define();
    if (!first_there)           /* nobody made it */
        define_thread(0, P3S_THREAD_CALLER, (int32_t)p3s_self.number, 1,
                      p3s_clock_ns(CLOCK_THREAD_CPUTIME_ID), 0);
    pthread_mutex_lock(&pool_lock);
    for (struct p3s_pooled *p = pool; p; p = p->next) {
        look(p);
        define_thread(p->number, p->kind, p->calls_as, 1, p->cpu_ns, p->alive ? p->tid : -1);
    }
    if (summed)
        define_thread(UINT32_MAX, P3S_THREAD_OTHER, -1, summed, summed_ns, -1);
    pthread_mutex_unlock(&pool_lock);
}

/* ---- what the threads run under ------------------------------------------------------------- */

static void say(char *text, size_t bytes, const char *name, const char *value)
{
    size_t at = strlen(text);
    if (value && *value)
        snprintf(text + at, bytes - at, "%s=%.200s\n", name, value);
}

static void say_number(char *text, size_t bytes, const char *name, const char *function)
{
    int (*ask)(void) = (int (*)(void))p3s_openmp(function);
    char number[16];
    if (ask) {
        snprintf(number, sizeof number, "%d", ask());
        say(text, bytes, name, number);
    }
}

static const char *level_name(void)
{
    int level;
    if (PMPI_Query_thread(&level) != MPI_SUCCESS)
        return NULL;
    return level == MPI_THREAD_MULTIPLE ? "multiple" : level == MPI_THREAD_SERIALIZED ? "serialized" :
           level == MPI_THREAD_FUNNELED ? "funneled" : "single";
}

/* Written when threads have worked for the first time, and again when it turns out that they were
 * teams: the runtime is there by then, and asking it starts nothing. */
void p3s_runtime_define(void)
{
    static bool done, teams;
    static const char *const variables[] = {"OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES",
                                            "OMP_WAIT_POLICY", "OMP_SCHEDULE", "GOMP_CPU_AFFINITY",
                                            "GOMP_SPINCOUNT", "KMP_AFFINITY", "KMP_BLOCKTIME"};
    char text[2048] = "", path[256];
    if (done && (teams || !p3s_openmp_there()))
        return;
    done = true;
    teams = p3s_openmp_there();
    say(text, sizeof text, "mpi_thread_level", level_name());
    say(text, sizeof text, "openmp", p3s_openmp_name(path, sizeof path));
    say(text, sizeof text, "openmp_library", path);
    say_number(text, sizeof text, "max_threads", "omp_get_max_threads");
    say_number(text, sizeof text, "proc_bind", "omp_get_proc_bind");
    say_number(text, sizeof text, "places", "omp_get_num_places");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        say(text, sizeof text, variables[i], getenv(variables[i]));
    p3s_define(P3S_REC_RUNTIME, NULL, 0, text, strlen(text));
}
