/* Running a signature: which phase each event belongs to, how long each turn of a phase takes,
 * and when it has been seen often enough (docs/signature-runs.md).
 *
 * The plan holds the loop nest of the program. An event's place in it is compared with that of
 * the event before: going backwards in the innermost loop around both begins a turn of that loop,
 * and every loop inside that leads to the event is entered, which begins a turn too. */
#include "p3s_phase.h"
#include "p3s_chunk.h"
#include "p3s_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPEN, TIGHT, MOST, ENOUGH };     /* states of a phase: TIGHT and later are only counted */

struct row {                    /* docs/capture-format.md: PHASES */
    uint32_t phase, state;
    uint64_t turns, measured, batches;
    double mean, variance;      /* of the turns measured; of that mean */
    int64_t elapsed_ns, work;   /* of the turns measured */
    uint64_t left_out, early;
    int64_t early_elapsed_ns, early_work;
    uint64_t detailed;          /* turns measured, and their mean, when it was left */
    double detailed_mean;
};
_Static_assert(sizeof(struct row) == 112, "row of PHASES");

struct loop { int parent, depth, place, phase, at; };
struct known { uint64_t key; char op[40]; int loop, place, phase; };
/* Turns that follow each other are disturbed by the same things: they are put together to batches,
 * and the spread is that of the batches. When all are full, they become half as many, twice as
 * long. */
#define BATCHES 32
#define DEEPEST 256             /* loops inside each other; entering them takes stack */
struct phase {
    bool relevant, begun;
    uint64_t largest;           /* turns after which it is known, whatever they took */
    uint64_t enough;            /* turns after which the rank waits to be ended, 0: never */
    double slack;               /* by which the variance may be larger: it is a small phase */
    int64_t elapsed_ns, work;   /* of the turn that is under way */
    uint64_t length, filled;    /* turns of a batch, of the last one */
    int batches;
    double sum[BATCHES + 1];
};

bool p3s_phases;

static struct loop *loops;
static struct known *knowns;
static struct phase *phases;
static double *bounds;          /* variance of the mean / mean^2 at which n batches are enough */
static int loop_count, known_count, phase_count, bound_count;
static long early, smallest;    /* the first turns are unlike the others: cold */
static bool by_work;            /* the spread of the work decides, not that of the time */
static int here;                /* the loop of the last event */
static bool waiting;            /* from the next event on, as this one begins a turn */

static uint64_t *site_keys;
static uint32_t site_room;
static struct made {            /* by number of the call */
    int place;                  /* 1 + index of knowns, 0: not asked yet */
    uint64_t last;              /* 1 + number of its last event, 0: none */
} *made;
static uint32_t call_room;

/* A call is only counted where it is the one that followed before: what is recorded then has the
 * order of all events (p3s/capture/counted.py finds it in the same way). */
#define REMEMBERED (1 << 18)
static uint32_t *history;       /* calls of the last events */
static uint64_t now, next;      /* events so far; the one that is to be repeated, now: none */

static struct p3s_chunk chunk;
static struct row *rows;

static void turn_begins(int number);

/* ---- the plan ------------------------------------------------------------------------------- */

static bool read_plan(FILE *file)
{
    char text[256], measure[16], op[40];
    int version, parent, place, phase, loop, relevant, l = 0, k = 0, p = 0, b = 0;
    unsigned long long key;
    unsigned long long bound, largest, enough;  /* whole numbers: how a fraction is read depends on the locale */
    if (!fgets(text, sizeof text, file) || sscanf(text, "p3s-plan %d", &version) != 1 ||
        version != 2 || !fgets(text, sizeof text, file) ||
        sscanf(text, "sizes %d %d %d %d %ld %ld %15s", &loop_count, &known_count,
               &phase_count, &bound_count, &early, &smallest, measure) != 7 ||
        loop_count < 1 || known_count < 0 || phase_count < 1 || bound_count < 1 ||
        loop_count > 1 << 20 || known_count > 1 << 20 || phase_count > 1 << 16 ||
        bound_count <= BATCHES || bound_count > 1 << 16 || smallest < 2)
        return false;
    by_work = !strcmp(measure, "work");
    loops = calloc((size_t)loop_count, sizeof *loops);
    knowns = calloc((size_t)known_count + 1, sizeof *knowns);
    phases = calloc((size_t)phase_count, sizeof *phases);
    bounds = calloc((size_t)bound_count, sizeof *bounds);
    history = calloc(REMEMBERED, sizeof *history);
    if (!loops || !knowns || !phases || !bounds || !history)
        return false;
    while (fgets(text, sizeof text, file)) {
        if (sscanf(text, "loop %d %d %d", &parent, &place, &phase) == 3) {
            if (l >= loop_count || parent >= l || (parent < 0) != (l == 0) ||
                phase < -1 || phase >= phase_count)
                return false;
            loops[l] = (struct loop){parent, l ? loops[parent].depth + 1 : 0, place, phase, -1};
            if (loops[l++].depth > DEEPEST)
                return false;
        } else if (sscanf(text, "call %llx %39s %d %d %d", &key, op, &loop, &place, &phase) == 5) {
            if (k >= known_count || loop < 0 || loop >= l || phase < 0 || phase >= phase_count)
                return false;
            knowns[k] = (struct known){.key = key, .loop = loop, .place = place, .phase = phase};
            strcpy(knowns[k++].op, op);
        } else if (sscanf(text, "phase %d %llu %llu %llu", &relevant, &bound, &largest,
                          &enough) == 4) {
            if (p >= phase_count)
                return false;
            phases[p].largest = largest;
            phases[p].enough = enough;
            phases[p].slack = (double)bound * 1e-6;
            phases[p].length = 1;
            phases[p++].relevant = relevant != 0;
        } else if (sscanf(text, "bound %llu", &bound) == 1) {
            if (b >= bound_count)
                return false;
            bounds[b++] = (double)bound * 1e-15;
        } else {
            return false;
        }
    }
    return l == loop_count && k == known_count && p == phase_count && b == bound_count;
}

void p3s_phase_open(const char *plan)
{
    FILE *file = plan && *plan ? fopen(plan, "re") : NULL;
    bool good = file && read_plan(file);
    uint64_t at = p3s_file_bytes();
    if (file)
        fclose(file);
    /* Without a plan everything is recorded, and the reader finds no phases. */
    if (!good || p3s_chunk_next(&chunk, P3S_CHUNK_PHASES, 0, 0, 0,
                                (size_t)phase_count * sizeof *rows))
        return;
    rows = (struct row *)chunk.payload;
    for (int i = 0; i < phase_count; i++)
        rows[i].phase = (uint32_t)i;
    chunk.used = (uint32_t)((size_t)phase_count * sizeof *rows);
    chunk.at->count = (uint32_t)phase_count;
    __atomic_store_n(&chunk.at->state, (uint64_t)chunk.used, __ATOMIC_RELEASE);
    __atomic_store_n(&p3s_header->phases_at, at, __ATOMIC_RELEASE);
    turn_begins(loops[0].phase);
    p3s_phases = true;
}

void p3s_phase_seal(void)
{
    p3s_phases = false;
    if (!chunk.at)
        return;
    /* Until now its checksum could not hold: the rows change in place. */
    uint64_t crc = p3s_crc(0, chunk.payload, chunk.used);
    __atomic_store_n(&chunk.at->state, crc << 32 | chunk.used, __ATOMIC_RELEASE);
    p3s_chunk_seal(&chunk);
}

/* ---- which place of the plan an event is at ---------------------------------------------------- */

void p3s_phase_site(uint32_t site, uint64_t key)
{
    if (site >= site_room) {
        uint32_t bigger = site_room ? 2 * site_room : 64;
        while (bigger <= site)
            bigger *= 2;
        uint64_t *more = realloc(site_keys, bigger * sizeof *more);
        if (!more)
            return;
        memset(more + site_room, 0, (bigger - site_room) * sizeof *more);
        site_keys = more;
        site_room = bigger;
    }
    site_keys[site] = key;
}

static int search(const struct p3s_call *call)
{
    uint64_t key = call->site < site_room ? site_keys[call->site] : 0;
    for (int i = 0; i < known_count; i++)
        if (knowns[i].key == key && !strcmp(knowns[i].op, p3s_op_names[call->op]))
            return i;
    return known_count;         /* never seen before: recorded in full */
}

static struct made *made_of(uint32_t number, const struct p3s_call *call)
{
    if (number >= call_room) {
        uint32_t bigger = call_room ? 2 * call_room : 256;
        while (bigger <= number)
            bigger *= 2;
        struct made *more = realloc(made, bigger * sizeof *more);
        if (!more)
            return NULL;
        memset(more + call_room, 0, (bigger - call_room) * sizeof *more);
        made = more;
        call_room = bigger;
    }
    if (!made[number].place)
        made[number].place = 1 + search(call);
    return &made[number];
}

static bool follows(uint32_t number, struct made *m)
{
    bool again = next < now && history[next % REMEMBERED] == number;
    if (!again && m->last && now - m->last < REMEMBERED - 1)
        next = m->last;
    else
        next++;
    history[now++ % REMEMBERED] = number;
    m->last = now;
    return again;
}

/* ---- turns --------------------------------------------------------------------------------------- */

/* How well the mean is known; true at sizes of the sample that grow by a third or more: looking
 * after every turn, one would stop at the first that happens to look well. */
static bool spread(struct phase *p, struct row *r, double cost)
{
    p->sum[p->batches] += cost;
    if (++p->filled < p->length)
        return false;
    p->filled = 0;
    p->batches++;
    int n = p->batches;
    double mean = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += p->sum[i];
    mean /= n;
    for (int i = 0; i < n; i++)
        squares += (p->sum[i] - mean) * (p->sum[i] - mean);
    r->measured = (uint64_t)n * p->length;
    r->batches = (uint64_t)n;
    r->mean = mean / (double)p->length;
    r->variance = n > 1 ? squares / (n - 1) / n / (double)(p->length * p->length) : 0;
    if (n == BATCHES) {
        for (int i = 0; i < BATCHES / 2; i++)
            p->sum[i] = p->sum[2 * i] + p->sum[2 * i + 1];
        p->batches = BATCHES / 2;
        p->length *= 2;
    }
    p->sum[p->batches] = 0;
    return r->measured == (uint64_t)smallest ||
           (r->measured > (uint64_t)smallest && (n == BATCHES || n == BATCHES * 3 / 4));
}

static void turn_ends(struct phase *p, struct row *r)
{
    bool look = false;
    if (r->early < (uint64_t)early) {
        r->early++;
        r->early_elapsed_ns += p->elapsed_ns;
        r->early_work += p->work;
    } else {
        r->elapsed_ns += p->elapsed_ns;
        r->work += p->work;
        /* Turns that are only counted are timed all the same: that costs nothing. */
        look = spread(p, r, (double)p->work + (by_work ? 0 : (double)p->elapsed_ns));
    }
    int state = OPEN;
    if (r->state != OPEN)
        return;
    if (!p->relevant && r->measured >= (uint64_t)smallest)
        state = ENOUGH;
    else if (look && r->variance <= p->slack * bounds[r->batches] * r->mean * r->mean)
        state = TIGHT;
    else if (r->turns >= p->largest)
        state = MOST;
    if (state != OPEN) {
        r->detailed = r->measured;
        r->detailed_mean = r->mean;
        __atomic_store_n(&r->state, (uint32_t)state, __ATOMIC_RELEASE);
    }
}

/* The program is ended when all ranks know their phases: one that is early does not run on. */
static void wait_for_end(void)
{
    static int waited;          /* 10 s at most: another rank may not get there without this one */
    for (int i = 0; i < phase_count; i++)
        if (phases[i].relevant && rows[i].state == OPEN)
            return;
    for (; waited < 1000; waited++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void turn_begins(int number)
{
    if (number < 0)
        return;                 /* a walk: it belongs to the phase around */
    struct phase *p = &phases[number];
    struct row *r = &rows[number];
    if (p->begun)
        turn_ends(p, r);
    p->begun = true;
    p->elapsed_ns = p->work = 0;
    waiting |= p->enough && r->turns >= p->enough;
    r->turns++;
}

/* Enter the loops from under to, which is around it, down to loop. */
static void enter(int loop, int to)
{
    if (loop == to)
        return;
    enter(loops[loop].parent, to);
    loops[loop].at = -1;
    if (loops[loop].parent != to)
        loops[loops[loop].parent].at = loops[loop].place;
    turn_begins(loops[loop].phase);
}

static void go_to(const struct known *k)
{
    int from = here, to = k->loop, place = k->place;
    while (loops[from].depth > loops[to].depth)
        from = loops[from].parent;
    while (loops[to].depth > loops[from].depth || from != to) {
        if (loops[to].depth == loops[from].depth)
            from = loops[from].parent;
        place = loops[to].place;
        to = loops[to].parent;
    }
    if (place <= loops[to].at)
        turn_begins(loops[to].phase);
    loops[to].at = place;
    enter(k->loop, to);
    loops[k->loop].at = k->place;
    here = k->loop;
}

bool p3s_phase_wants(uint32_t number, const struct p3s_call *call, int64_t elapsed_ns,
                     int64_t work)
{
    struct made *m = made_of(number, call);
    if (!m) {
        p3s_stop("no memory for the trace", ENOMEM);
        return true;
    }
    if (waiting)
        wait_for_end();
    waiting = false;
    bool again = follows(number, m);
    /* Events of several threads are not in the order of the program's loops. */
    if (call->thread || m->place > known_count)
        return true;
    const struct known *k = &knowns[m->place - 1];
    go_to(k);
    struct phase *p = &phases[k->phase];
    p->elapsed_ns += elapsed_ns;
    p->work += work;
    /* Places in files and windows are not in the call. */
    if (rows[k->phase].state == OPEN || !again || call->window != P3S_NONE)
        return true;
    rows[k->phase].left_out++;
    return false;
}
