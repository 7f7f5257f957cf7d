/* Parallel regions, whatever the runtime: how long each thread worked and waited, put together for
 * the MPI call that comes next. p3s_gomp.c and p3s_ompt.c say what happens. */
#include "p3s_team.h"
#include "p3s_inside.h"

_Static_assert(sizeof((struct p3s_body){0}.counts) / 8 == P3S_COUNTS, "counts of a body");

/* Reading the CPU clock of a thread is a system call. A stretch that took less than so many of them
 * counts with its wall time: a thread that lost its core has lost it for longer, most of the time.
 * The clock is read where the last time is longer ago than that, so it takes at most a 128th. */
#define READS 128

static int64_t patience_ns;
bool p3s_teams;

static int64_t read_cpu(void) { return p3s_clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static int64_t now_ns(void) { return p3s_clock_ns(CLOCK_MONOTONIC); }

int64_t p3s_patience(void)
{
    int64_t known = __atomic_load_n(&patience_ns, __ATOMIC_RELAXED);
    if (known)
        return known;
    int64_t least = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        int64_t begin = now_ns();
        read_cpu();
        int64_t took = now_ns() - begin;
        least = took < least ? took : least;
    }
    known = READS * (least > 0 ? least : 1);
    __atomic_store_n(&patience_ns, known, __ATOMIC_RELAXED);
    return known;
}

/* Make sure that the CPU time is known of a moment shortly before now; returns when it is now. */
static int64_t anchor(struct p3s_thread *t, int64_t now)
{
    if (now - t->cpu_at_ns < patience_ns)
        return now;
    t->cpu_ns = read_cpu();
    return t->cpu_at_ns = now_ns();
}

/* CPU time between a moment when it was before (and anchored) and now. */
static int64_t cpu_since(struct p3s_thread *t, int64_t then, int64_t before, int64_t now)
{
    int64_t wall = now - then;
    if (wall < patience_ns)
        return wall;
    if (now - t->cpu_at_ns >= patience_ns) {
        t->cpu_ns = read_cpu();
        t->cpu_at_ns = now;
    }
    int64_t cpu = t->cpu_ns + (now - t->cpu_at_ns) - before;
    return cpu < 0 ? 0 : cpu < wall ? cpu : wall;
}

static void go(struct p3s_thread *t, int64_t now)
{
    t->body.since_ns = anchor(t, now);
    t->body.active = true;
}

static void stop(struct p3s_thread *t, int64_t now)
{
    struct p3s_body *b = &t->body;
    /* The clock was read at the beginning, or shortly before it. */
    int64_t cpu = cpu_since(t, b->since_ns, t->cpu_ns, now);
    b->busy += cpu;
    b->path += cpu;
    b->stopped_ns = now;
    b->active = false;
}

bool p3s_pause(void)
{
    struct p3s_thread *t = &p3s_self;
    if (!t->body.active)
        return false;
    stop(t, now_ns());
    return true;
}

void p3s_resume(void)
{
    struct p3s_thread *t = &p3s_self;
    if (!t->body.team || t->body.active)
        return;
    int64_t now = now_ns();
    t->body.waiting += now - t->body.stopped_ns;
    go(t, now);
}

/* ---- into the team -------------------------------------------------------------------------- */

static void add(int64_t *to, int64_t amount)
{
    if (amount)
        __atomic_fetch_add(to, amount, __ATOMIC_RELAXED);
}

static void at_least(int64_t *to, int64_t value)
{
    int64_t is = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (is < value && !__atomic_compare_exchange_n(to, &is, value, true, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
    }
}

/* A thread has worked in a region if it was busy for more than that, or for a hundredth of it. */
#define WORKED_NS 1000

static void publish(struct p3s_body *b, int64_t now)
{
    struct p3s_team *team = b->team;
    int64_t end = now - team->begin_ns;
    add(&team->busy, b->busy - b->said_busy);
    add(&team->waiting, b->waiting - b->said_waiting);
    add(&team->ends, end - b->said_end);
    b->said_busy = b->busy;
    b->said_waiting = b->waiting;
    b->said_end = end;
    at_least(&team->longest, b->path);
    at_least(&team->present, now - b->begun_ns);
    at_least(&team->last_end, end);
    bool worked = !b->worked && (b->busy > WORKED_NS || b->busy * 100 > end);
    uint64_t more = (uint64_t)worked << 32 | !b->known;
    if (more)
        __atomic_fetch_add(&team->threads, more, __ATOMIC_RELAXED);
    b->known = true;
    b->worked |= worked;
    for (int i = 0; i < P3S_COUNTS; i++)
        if (b->counts[i]) {
            __atomic_fetch_add(&team->counts[i], b->counts[i], __ATOMIC_RELAXED);
            b->counts[i] = 0;
        }
}

void p3s_publish(void)
{
    struct p3s_body *b = &p3s_self.body;
    if (b->team)
        publish(b, b->active ? now_ns() : b->stopped_ns);
}

/* ---- bodies --------------------------------------------------------------------------------- */

void p3s_body_begin(struct p3s_team *team, bool first)
{
    struct p3s_thread *t = &p3s_self;
    if (!first)
        p3s_pool_kind(P3S_THREAD_TEAM);
    t->body = (struct p3s_body){.team = team, .first = first};
    t->body.begun_ns = now_ns();
    go(t, t->body.begun_ns);
}

/* Tasks may still be run, in the barrier of the join; what is here after that means nothing. */
void p3s_body_end(void)
{
    struct p3s_thread *t = &p3s_self;
    int64_t now = now_ns();
    if (t->body.active)
        stop(t, now);
    publish(&t->body, now);
    t->body.ended = true;
}

/* ---- regions -------------------------------------------------------------------------------- */

void p3s_region_begin(struct p3s_team *team)
{
    struct p3s_thread *t = &p3s_self;
    p3s_patience();
    p3s_teams = true;
    int64_t now = now_ns();
    team->go_on = t->body.active;
    if (t->body.active)
        stop(t, now);
    team->outer = t->body;
    team->owner = t;
    team->runtime = NULL;
    team->size = 0;
    team->given = 0;
    team->started = team->join_told = team->entries = false;
    team->busy = team->longest = team->waiting = team->present = team->last_end = team->ends = 0;
    team->threads = 0;
    for (int i = 0; i < P3S_COUNTS; i++)
        team->counts[i] = 0;
    t->body.team = NULL;
    t->body.active = false;
    now = anchor(t, now);
    team->begin_ns = now;
    team->begin_cpu = t->cpu_ns + (now - t->cpu_at_ns);
}

/* All threads have ended: idle from then on until the last one did. */
static int64_t waited(const struct p3s_team *team)
{
    int64_t threads = (int64_t)(uint32_t)team->threads;
    int64_t idle = threads * team->last_end - team->ends;
    return team->waiting + (idle > 0 ? idle : 0);
}

static void into_outer(struct p3s_thread *t, const struct p3s_team *team, int64_t now)
{
    struct p3s_body *b = &t->body;
    b->busy += team->busy;
    b->path += team->longest;
    b->handed += team->given;
    b->waiting += waited(team);
    for (int i = 0; i < P3S_COUNTS; i++)
        b->counts[i] += team->counts[i];
    b->counts[P3S_NESTED]++;
    if (team->go_on)
        go(t, now);
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static void into_segment(struct p3s_thread *t, const struct p3s_team *team, int64_t now)
{
    struct p3s_segment *s = &t->segment;
    int64_t wall = now - team->begin_ns, overhead = wall - team->present;
    int64_t cpu = team->begin_cpu + cpu_since(t, team->begin_ns, team->begin_cpu, now);
    /* What was before an MPI call inside the region is that call's. */
    int64_t own = cpu - later(team->begin_cpu, t->work_at_return);
    int64_t path = team->longest - team->given;
    uint64_t size = (uint32_t)team->threads, worked = team->threads >> 32;
    t->region_own += own > 0 ? own : 0;
    t->region_path += path > 0 ? path : 0;
    t->region_wall += now - later(team->begin_ns, t->left_ns);
    s->regions++;
    s->team = size > s->team ? size : s->team;
    s->worked = worked > s->worked ? worked : s->worked;
    s->region_ns += wall;
    s->busy_ns += team->busy;
    s->longest_ns += team->longest;
    s->waiting_ns += waited(team);
    s->overhead_ns += overhead > 0 ? overhead : 0;
    s->nested += team->counts[P3S_NESTED];
    s->static_loops += team->counts[P3S_STATIC];
    s->dynamic_loops += team->counts[P3S_DYNAMIC];
    s->sections += team->counts[P3S_SECTIONS];
    s->barriers += team->counts[P3S_BARRIERS];
    s->tasks += team->counts[P3S_TASKS];
    s->singles += team->counts[P3S_SINGLES];
    s->criticals += team->counts[P3S_CRITICALS];
}

void p3s_region_end(struct p3s_team *team)
{
    struct p3s_thread *t = &p3s_self;
    int64_t now = now_ns();
    t->body = team->outer;
    if (t->body.team)
        into_outer(t, team, now);
    else
        into_segment(t, team, now);
}

/* ---- MPI calls ------------------------------------------------------------------------------ */

uint32_t p3s_size_of_team(void)
{
    struct p3s_team *team = p3s_self.body.team;
    uint32_t size = __atomic_load_n(&team->size, __ATOMIC_RELAXED);
    if (!size) {
        size = p3s_team_size();
        __atomic_store_n(&team->size, size, __ATOMIC_RELAXED);
    }
    return size;
}

/* What the thread has worked in the regions that it is in, as far as no MPI call had it before; into
 * *before how much of own, its CPU time, was before the outermost of them. */
static int64_t inside(struct p3s_thread *t, const struct p3s_here *h, int64_t own, int64_t *before)
{
    int64_t sum = 0;
    *before = 0;
    for (struct p3s_body *b = &t->body; b->team; b = &b->team->outer) {
        int64_t more = b->path - b->handed;
        b->handed = b->path;
        b->team->given += b->first ? more : 0;
        sum += more;
        if (b->first && !b->team->outer.team)
            *before = later(own - later(h->clock - b->team->begin_cpu, 0), 0);
    }
    return sum;
}

/* The work of an event whose thread itself worked for own since its last wrapper. In wall time the
 * work is that: the thread that calls has waited for the others. */
int64_t p3s_team_work(struct p3s_here *h, int64_t own)
{
    struct p3s_thread *t = &p3s_self;
    struct p3s_segment *s = &t->segment;
    bool cpu = p3s_work_source == P3S_WORK_CPU;
    int64_t wall = later(h->t0_ns - t->left_ns, 0), work = own, longest = 0, serial = wall;
    if (t->body.active) {
        stop(t, h->t0_ns);
        t->body.in_call = true;
    }
    if (cpu && (t->body.team || t->region_wall)) {
        int64_t before = own, within = t->body.team ? inside(t, h, own, &before) : 0;
        serial = later(before - t->region_own, 0);
        work = serial + t->region_path + within;
    } else if (cpu) {
        serial = own;
    } else {
        serial -= t->region_wall;
        serial -= t->body.team ? h->t0_ns - later(t->body.begun_ns, t->left_ns) : 0;
    }
    s->wall_ns += wall;
    s->serial += later(serial, 0);
    t->region_own = t->region_path = t->region_wall = 0;
    if (p3s_pool_others && !t->number)
        p3s_pool_take(s, &longest);
    return cpu && longest > work ? longest : work;
}

void p3s_team_forget(void)
{
    struct p3s_thread *t = &p3s_self;
    t->segment = (struct p3s_segment){0};
    t->region_own = t->region_path = t->region_wall = 0;
    t->left_ns = now_ns();
    if (p3s_pool_others)
        p3s_pool_skip();
}

void p3s_team_leave(const struct p3s_here *h)
{
    struct p3s_thread *t = &p3s_self;
    if (h->recorded)
        t->segment = (struct p3s_segment){0};
    if (p3s_pool_others && !t->number && h->t1_ns - h->t0_ns >= p3s_patience())
        p3s_pool_skip();
    if (t->body.in_call) {
        t->body.in_call = false;
        go(t, h->t1_ns);
    }
}
