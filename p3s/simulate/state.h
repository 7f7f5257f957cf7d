/* What the simulation knows: ranks, costs of messages, events by time. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;

enum {
    SEND = 1, SSEND, BSEND, ISEND, ISSEND, START_SEND, START_SSEND, RECV, IRECV, START_RECV,
    SENDRECV, WAIT, WAITANY, WAITSOME, COLLECTIVE, ICOLLECTIVE, REST
};
/* State of a step. ARRIVED: of what it sends; of a collective: its end is known. */
enum {
    BEGUN = 1, ARRIVED = 2, USED = 4, WANT_SENT = 8, WANT_HERE = 16, MEETS = 32,
    LET_GO = 64, CUT = 128 /* only where the simulation is to end anyway, see loosen() */
};
/* Events of the heap, in this order at one time. */
enum { BOTH_IN_CALL, ANNOUNCE, ANSWER, EGRESS, TRUNK, INGRESS, CHOICE };
enum { HOP_BITS = 40, KIND_BITS = 56 }; /* of an event: step or rank, hop, kind */
enum { TOGETHER, FROM_ROOT, TO_ROOT, CHAIN };   /* kinds of collectives */
enum { DONE, DEADLOCK, NO_MEMORY, FLAWED };
enum { SOUND, NO_OPERATION, NO_RANK, NO_BYTES, NO_WORK, NOT_RECEIVED, NOT_SENT, NO_REQUEST };

struct input {
    i64 steps, ranks, n, nodes, instances;
    const i64 *rank, *start;
    /* Of every step, as narrow as what they hold: the core waits for memory more than it computes. */
    const uint8_t *op;
    const int32_t *peer;
    const i64 *bytes;
    const int32_t *peer2; /* the receive half of SENDRECV; NULL where there is none */
    const i64 *bytes2;
    const int32_t *number; /* of WAITSOME; NULL where there is none */
    const i64 *done_start;
    const int32_t *done, *to, *source;
    const double *work, *first_ns, *extra; /* extra: NULL, or added to what each transfer takes */
    i64 known;     /* that all but the work is sound */
    double slower; /* work takes the slower-th part of it */
    /* What times are added up to, of every step; NULL: times are put out as they are. */
    const int32_t *cell;
    const double *weight;
    const uint8_t *group; /* NULL: there are none; 0: in none */
    const i64 *node_of;
    const unsigned char *path_of;      /* nodes x nodes, or NULL: same inside, other between */
    i64 same, other;
    const i64 *curve_start, *linked;   /* four curves per path, see cost_of */
    const double *curve_bytes, *curve_ns, *eager;
    double rate, burst, post, held_ns;
    /* Links between switches: the place of each node (NULL: there are none), the links on the way
     * from each place to each other one, and what each link carries. */
    i64 places, trunks;
    const i64 *place_of, *route_start, *route;
    const double *trunk_rate, *trunk_burst;
    i64 background, anyway, handshake;
    /* Messages on one link share its rate; what comes back takes this share of theirs. */
    i64 fair;
    double back;
    /* Collective calls in the order of their steps, and the instances they take part in. */
    const i64 *call_start, *call_step, *call_instance;
    const double *call_ns;
    const i64 *kind, *member_start, *member, *expected, *root;
};

/* What other ranks ask of a step, together in memory: begin of its call; of what it sends, begin of
 * the transfer and arrival; number of its rank; its entry in the costs. */
struct live {
    double begin, began, arrival;
    int32_t cost;
    uint32_t owner : 24, state : 8;
};

/* Weighted sums of times of calls. */
struct sum { double whole, waiting, transfer, software; };

struct output {
    struct live *live;
    double *end, *waiting, *software;
    struct sum *sums; /* of each cell */
    double *longs;    /* of each group and rank */
    i64 *at, queued, flaw, where, loosened;
};

/* load: bytes that would keep a node's link busy for as long as the message does. */
struct cost { i64 bytes; int path; double transfer, send, receive, latency, load; };
struct event { double ns; i64 what; };
struct item { double door, here, began, cost; };
struct pick { double ns; i64 step, place; };

struct sim {
    const struct input *in;
    struct output *out;
    struct live *live;
    int32_t *pending, *table;
    unsigned char *queued;
    double *clock, *choice, *egress, *ingress, *trunk, *latest;
    i64 *runnable, *call, *arrived, *next;
    i64 runnables, costs, cost_room, table_size, events, event_room;
    struct cost *kinds;
    struct event *heap;
    struct item *items;
    struct pick *picks;
    struct fluid *fluid; /* NULL: links have queues */
    int failed;
};

/* ---- heap of events by time, then kind, then step ---- */

static int before(struct event a, struct event b)
{
    return a.ns < b.ns || (a.ns == b.ns && a.what < b.what);
}

static struct event event(double ns, int kind, i64 step)
{
    struct event e = {ns, ((i64)kind << KIND_BITS) | step};
    return e;
}

/* The same at the hop-th link of a message's way. */
static struct event event_at(double ns, int kind, i64 hop, i64 step)
{
    return event(ns, kind, (hop << HOP_BITS) | step);
}

static void push(struct sim *s, struct event e)
{
    if (s->events == s->event_room) {
        i64 room = s->event_room ? 2 * s->event_room : 1024;
        struct event *more = realloc(s->heap, (size_t)room * sizeof *more);
        if (!more) {
            s->failed = 1;
            return;
        }
        s->heap = more;
        s->event_room = room;
    }
    i64 i = s->events++;
    while (i && before(e, s->heap[(i - 1) / 4])) {
        s->heap[i] = s->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    s->heap[i] = e;
}

static struct event pop(struct sim *s)
{
    struct event top = s->heap[0], last = s->heap[--s->events];
    i64 i = 0, n = s->events;
    for (;;) {
        i64 first = 4 * i + 1, least = first;
        if (first >= n)
            break;
        for (i64 k = first + 1; k < first + 4 && k < n; k++)
            if (before(s->heap[k], s->heap[least]))
                least = k;
        if (!before(s->heap[least], last))
            break;
        s->heap[i] = s->heap[least];
        i = least;
    }
    s->heap[i] = last;
    return top;
}

/* ---- costs of messages, one entry per path and number of bytes ---- */

static double along(const struct input *in, i64 curve, double bytes)
{
    const double *x = in->curve_bytes, *y = in->curve_ns;
    i64 low = in->curve_start[curve], end = in->curve_start[curve + 1] - 1, high = end;
    if (bytes <= x[low])
        return y[low];
    if (bytes > x[end]) {
        double slope = end > low ? (y[end] - y[end - 1]) / (x[end] - x[end - 1]) : 0;
        return y[end] + (slope > 0 ? slope * (bytes - x[end]) : 0);
    }
    while (high - low > 1) {
        i64 middle = low + (high - low) / 2;
        if (x[middle] < bytes)
            low = middle;
        else
            high = middle;
    }
    return y[low] + (y[high] - y[low]) * ((bytes - x[low]) / (x[high] - x[low]));
}

static i64 place_of(const struct sim *s, int path, i64 bytes)
{
    uint64_t mixed = ((uint64_t)bytes * 256 + (uint64_t)path) * 0x9e3779b97f4a7c15u;
    i64 place = (i64)(mixed >> 20) & (s->table_size - 1);
    while (s->table[place] >= 0 && (s->kinds[s->table[place]].bytes != bytes
                                    || s->kinds[s->table[place]].path != path))
        place = (place + 1) & (s->table_size - 1);
    return place;
}

static int grow_costs(struct sim *s)
{
    i64 room = s->cost_room ? 2 * s->cost_room : 64;
    struct cost *more = realloc(s->kinds, (size_t)room * sizeof *more);
    int32_t *table;
    if (more)
        s->kinds = more;
    table = more ? malloc((size_t)(4 * room) * sizeof *table) : NULL;
    if (!table) {
        s->failed = 1;
        return 0;
    }
    free(s->table);
    s->table = table;
    s->cost_room = room;
    s->table_size = 4 * room;
    memset(table, 0xff, (size_t)s->table_size * sizeof *table);
    for (i64 i = 0; i < s->costs; i++)
        table[place_of(s, s->kinds[i].path, s->kinds[i].bytes)] = (int32_t)i;
    return 1;
}

static int32_t cost_of(struct sim *s, int path, i64 bytes)
{
    const struct input *in = s->in;
    i64 place = place_of(s, path, bytes);
    if (s->table[place] >= 0)
        return s->table[place];
    if (s->costs == s->cost_room) {
        if (!grow_costs(s))
            return 0;
        place = place_of(s, path, bytes);
    }
    struct cost *c = &s->kinds[s->costs];
    c->bytes = bytes;
    c->path = path;
    c->transfer = along(in, 4 * path, (double)bytes);
    c->latency = along(in, 4 * path, 0);
    c->send = along(in, 4 * path + 1, (double)bytes);
    c->receive = along(in, 4 * path + 2, (double)bytes);
    double busy = isfinite(in->rate) ? in->rate * along(in, 4 * path + 3, (double)bytes) : 0;
    c->load = busy > (double)bytes ? busy : (double)bytes;
    return s->table[place] = (int32_t)s->costs++;
}

static int path_between(const struct input *in, i64 one, i64 other)
{
    i64 a = in->node_of[one], b = in->node_of[other];
    return (int)(in->path_of ? in->path_of[a * in->nodes + b] : a == b ? in->same : in->other);
}

static i64 rank_of(const struct sim *s, i64 step) { return s->in->rank[s->live[step].owner]; }
