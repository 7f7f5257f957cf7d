/* Calls of the C library that read and write files. A run of adjacent calls of one kind, from one
 * place, on one file is one event: with their number, their bytes and the time inside of them. It
 * is written when another call comes. Only threads that call MPI, outside of parallel regions. */
#include "p3s_posix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Within so little time a call has hardly waited: its wall time stands for its CPU time, whose clock
 * is a system call. */
#define SHORT_NS 5000

__thread bool p3s_io_pending;

struct run {                    /* what is pending; its members are the first call's */
    void *ra, *fa;
    uint32_t op, site, depth;
    int fd, file;
    bool truncates;
    uint64_t calls;
    int64_t bytes, elapsed_ns, end_ns, work;
    int64_t from, to;           /* first byte, and behind the last one; -1: not known */
    int64_t wall_at_return;     /* as p3s_self.work_at_return, on the wall clock */
    uint64_t counter[P3S_MAX_COUNTERS];
};
static __thread struct run run __attribute__((tls_model("initial-exec")));
static bool wanted;

void p3s_io_begin(void)
{
    const char *wish = getenv("P3S_POSIX_IO");
    wanted = !wish || strcmp(wish, "0");
}

/* ---- the pending event ------------------------------------------------------------------------ */

/* Does it read or write where the file stands? */
static bool sequential(uint32_t op)
{
    return op == P3S_OP_POSIX_read || op == P3S_OP_POSIX_write || op == P3S_OP_POSIX_readv ||
           op == P3S_OP_POSIX_writev;
}

/* From the first to the last byte, if that shows. */
static int64_t span_of(void)
{
    int64_t end = sequential(run.op) ? lseek(run.fd, 0, SEEK_CUR) : run.to;
    return end >= run.from ? end - run.from : run.bytes;
}

void p3s_io_flush(void)
{
    int error = errno;
    p3s_io_pending = false;
    if (!p3s_active)
        return;
    p3s_hold();
    struct p3s_call call = p3s_call_of(run.op, run.site, P3S_NONE, P3S_NONE, P3S_NONE);
    call.depth = run.depth;
    call.tag = run.truncates ? 1 : P3S_NONE;
    call.bytes = run.bytes;
    call.count = (int64_t)run.calls;
    call.window = run.file;
    uint64_t event = p3s_put_event(&call, run.end_ns - run.elapsed_ns - p3s_epoch_ns,
                                   run.elapsed_ns, run.work, run.counter);
    if (run.from >= 0)
        p3s_put_access(event, run.from, span_of());
    p3s_self.last_event = event;
    p3s_let_go();
    errno = error;
}

static void name_op(uint32_t op)
{
    if (__atomic_load_n(&p3s_op_known[op], __ATOMIC_RELAXED))
        return;
    p3s_hold();
    p3s_put_op(op);
    p3s_let_go();
}

/* ---- entering and leaving ---------------------------------------------------------------------- */

static bool recorded_here(void)
{
    struct p3s_thread *t = &p3s_self;
    return p3s_active && wanted && !t->depth && t->known && !t->body.team;
}

static bool adjacent(const struct p3s_io *i)
{
    return p3s_io_pending && run.op == i->op && run.file == i->file && run.fd == i->fd &&
           run.ra == i->ra && run.fa == i->fa;
}

/* The work since the last return of a wrapper becomes the pending event's. What regions of threads
 * did cannot be divided: it all goes to the next call of MPI. */
static void take_work(const struct p3s_io *i, bool first)
{
    struct p3s_thread *t = &p3s_self;
    if (p3s_teams)
        return;
    int64_t work = i->clock - t->work_at_return - p3s_clock_cost;
    run.work += (first ? t->carried_work : 0) + (work > 0 ? work : 0);
    for (int k = 0; k < p3s_counters; k++)
        run.counter[k] += i->counter[k] - t->counter_at_return[k] +
                          (first ? t->carried_counter[k] : 0);
    if (!first)
        return;
    t->carried_work = 0;
    memset(t->carried_counter, 0, sizeof t->carried_counter);
}

/* A new pending event; false where it cannot be one. */
static bool begin_run(struct p3s_io *i)
{
    if (p3s_io_pending)
        p3s_io_flush();
    uint32_t site = p3s_site();
    if (site == P3S_INSIDE_MPI)
        return false;
    name_op(i->op);
    run = (struct run){.ra = i->ra, .fa = i->fa, .op = i->op, .site = site,
                       .depth = p3s_self.site_depth, .fd = i->fd, .file = i->file,
                       .truncates = i->truncates, .to = -1, .from = sequential(i->op) ? lseek(i->fd, 0, SEEK_CUR) : -1};
    return true;
}

static void read_clocks(struct p3s_io *i)
{
    i->clock = p3s_work_now();
    if (p3s_counters)
        p3s_counters_read(&p3s_self, i->counter);
    i->t0_ns = p3s_work_source == P3S_WORK_WALL ? i->clock : p3s_clock_ns(CLOCK_MONOTONIC);
}

static bool enter(struct p3s_io *i)
{
    struct p3s_thread *t = &p3s_self;
    /* What joins calls that the gate has let in comes from the same place. */
    i->joins = i->file >= 0 && adjacent(i);
    i->light = i->joins && p3s_work_source == P3S_WORK_CPU && !p3s_counters;
    if (i->light) {
        p3s_go_in(i->ra, i->fa);
        i->t0_ns = p3s_clock_ns(CLOCK_MONOTONIC);
        return true;
    }
    read_clocks(i);
    if (i->joins)
        p3s_go_in(i->ra, i->fa);
    else if (!p3s_gate(i->ra, i->fa))
        return false;
    i->file = p3s_file_of(i->fd);
    if (i->file < 0 || (!i->joins && !begin_run(i))) {
        t->depth = 0;
        return false;
    }
    take_work(i, !i->joins);
    if (!i->joins)              /* a site may have been looked up meanwhile */
        i->t0_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    return true;
}

bool p3s_io_enter(struct p3s_io *i, uint32_t op, int fd, void *ra, void *fa)
{
    int error = errno;
    if (!recorded_here() || !p3s_file_wanted(fd, &i->file))
        return false;
    i->ra = ra, i->fa = fa, i->op = op, i->fd = fd, i->truncates = false;
    bool there = enter(i);
    errno = error;
    return there;
}

/* The work clock at the return of a call, what the tracer itself takes being none. */
static int64_t clock_at_return(const struct p3s_io *i, int64_t t1)
{
    struct p3s_thread *t = &p3s_self;
    int64_t took = t1 - i->t0_ns;
    if (p3s_work_source == P3S_WORK_INSTRUCTIONS)
        return p3s_work_now();
    int64_t now = p3s_clock_ns(CLOCK_MONOTONIC);
    if (p3s_work_source == P3S_WORK_WALL)
        return now;
    if (took >= SHORT_NS) {
        int64_t cpu = p3s_work_now();
        if (i->light && !p3s_teams) {
            /* It was not read before: the thread computed since it last was, but for no longer
             * than that took. */
            int64_t since = cpu - t->work_at_return, wall = i->t0_ns - run.wall_at_return;
            int64_t between = since < wall ? since : wall;
            run.work += between > 0 ? between : 0;
        }
        return cpu;
    }
    return i->light ? t->work_at_return + (now - i->t0_ns) : i->clock + (now - i->t0_ns);
}

static void leave(struct p3s_io *i, int64_t bytes)
{
    struct p3s_thread *t = &p3s_self;
    int64_t t1 = p3s_clock_ns(CLOCK_MONOTONIC), wall = run.wall_at_return;
    run.calls++;
    run.bytes += bytes;
    run.elapsed_ns += t1 - i->t0_ns;
    run.end_ns = t1;
    p3s_io_pending = true;
    int64_t at = clock_at_return(i, t1);
    if (p3s_teams) {            /* only what is no work is taken off */
        int64_t inside = i->light ? at - t->work_at_return : at - i->clock;
        t->work_at_return += inside;
        t->left_ns += t1 - i->t0_ns;
    } else {
        t->work_at_return = at;
    }
    if (p3s_counters)
        p3s_counters_read(t, t->counter_at_return);
    int64_t now = p3s_clock_ns(CLOCK_MONOTONIC);
    run.wall_at_return = i->light && t1 - i->t0_ns < SHORT_NS ? wall + (now - i->t0_ns) : now;
    t->wall_at_return = 0;
    t->depth = 0;
}

void p3s_io_leave(struct p3s_io *i, int64_t bytes)
{
    int error = errno;
    leave(i, bytes > 0 ? bytes : 0);
    errno = error;
}

void p3s_io_at(int64_t offset, int64_t bytes)
{
    int64_t end = offset + (bytes > 0 ? bytes : 0);
    if (run.from < 0 || offset < run.from)
        run.from = offset;
    if (end > run.to)
        run.to = end;
}

bool p3s_io_opening(struct p3s_io *i, uint32_t op, bool truncates, void *ra, void *fa)
{
    int error = errno;
    if (!recorded_here())
        return false;
    *i = (struct p3s_io){.ra = ra, .fa = fa, .op = op, .fd = -1, .file = -1,
                         .truncates = truncates};
    read_clocks(i);
    bool there = p3s_gate(ra, fa);
    i->t0_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    errno = error;
    return there;
}

/* What is not recorded leaves no trace: its time stays where it was. */
void p3s_io_opened(struct p3s_io *i, int fd)
{
    int error = errno;
    int64_t t1 = p3s_clock_ns(CLOCK_MONOTONIC), took = t1 - i->t0_ns;
    struct p3s_io began = *i;
    p3s_file_forget(fd);
    i->file = fd < 0 ? -1 : p3s_file_of(fd);
    if (i->file >= 0 && begin_run(i)) {
        take_work(&began, true);
        leave(i, 0);
        /* Looking its site up is no part of it. */
        run.elapsed_ns = took;
        run.end_ns = t1;
    }
    p3s_self.depth = 0;
    errno = error;
}
