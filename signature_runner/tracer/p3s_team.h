/* Threads of a process: teams of OpenMP whatever the runtime, threads that the program makes itself,
 * and what they did between two MPI calls. */
#ifndef P3S_TEAM_H
#define P3S_TEAM_H

#include "p3s_tracer.h"

/* What is counted of a team. Worksharing constructs and barriers are met by all threads of it and
 * counted once; tasks and critical sections count each time one is executed. */
enum { P3S_NESTED, P3S_STATIC, P3S_DYNAMIC, P3S_SECTIONS, P3S_BARRIERS, P3S_TASKS, P3S_SINGLES,
       P3S_CRITICALS, P3S_COUNTS };

/* One parallel region, from the fork to the join. The second half is changed by all threads. */
struct p3s_team {
    void (*run)(void *);        /* what the compiler made of the region, where libgomp runs it */
    void *data;
    void *runtime;              /* whose entries it was begun with: p3s_gomp.c */
    struct p3s_body outer;      /* of the forking thread in the region around */
    struct p3s_thread *owner;
    bool go_on;                 /* the forking thread was at work when it forked */
    bool started;               /* libgomp's old way, with a start and an end */
    bool entries;               /* OMPT: the program calls GOMP_..., which counts what it can */
    bool join_told;             /* OMPT tells the barrier of the join from others */
    uint32_t size;
    int64_t begin_ns, begin_cpu, given;
    _Alignas(64) int64_t busy;  /* CPU time of all threads without waiting, and of the longest */
    int64_t longest, waiting, present, last_end, ends;
    uint64_t threads;           /* that took part; << 32: of them worked */
    uint64_t counts[P3S_COUNTS];
};

void p3s_region_begin(struct p3s_team *team);
void p3s_region_end(struct p3s_team *team);
void p3s_body_begin(struct p3s_team *team, bool first);
void p3s_body_end(void);
/* The thread waits from here on; returns whether it was at work. */
bool p3s_pause(void);
void p3s_resume(void);
/* Into the team what the thread has done so far: it may have nothing more to do in the region. */
void p3s_publish(void);

static inline void p3s_count(int what)
{
    p3s_self.body.counts[what]++;
}

/* A construct that all threads of a team meet. */
static inline void p3s_count_once(int what)
{
    p3s_self.body.counts[what] += p3s_self.body.first;
}

/* So long the wall time of a stretch stands for its CPU time. */
int64_t p3s_patience(void);

/* ---- runtimes ------------------------------------------------------------------------------- */

extern bool p3s_ompt;                   /* a runtime tells its events through OMPT */
const char *p3s_ompt_version(void);     /* what it says it is */
bool p3s_openmp_there(void);            /* was a runtime used? */
/* A function omp_... of the runtime in use, NULL if none was used. */
void *p3s_openmp(const char *name);
/* Its name, NULL if none was used; into path which file it is. */
const char *p3s_openmp_name(char *path, size_t bytes);
/* Team size of the calling thread's innermost region, 1 if nothing tells. */
uint32_t p3s_team_size(void);

/* ---- threads -------------------------------------------------------------------------------- */

enum { P3S_THREAD_OTHER, P3S_THREAD_TEAM, P3S_THREAD_CALLER, P3S_THREAD_RUNTIME };
/* What the calling thread is for; it stays what it was said to be first but for OTHER. */
void p3s_pool_kind(int kind);
void p3s_pool_take(struct p3s_segment *into, int64_t *longest);  /* CPU time since taken last */
void p3s_pool_skip(void);               /* from here on only: the first thread was inside MPI */
extern uint32_t p3s_pool_others;        /* threads that are no team's, so far */

/* Definitions RUNTIME and THREAD; need p3s_lock. */
void p3s_pool_define(void);
void p3s_runtime_define(void);

#endif
