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
enum { DONE, DEADLOCK, NO_MEMORY, FLAWED, NO_ROOM };
enum { APART = 255 };
enum { SOUND, NO_OPERATION, NO_RANK, NO_BYTES, NO_WORK, NOT_RECEIVED, NOT_SENT, NO_REQUEST };

/* Steps as they are put in, each column as narrow as what it holds. */
struct columns {
    i64 steps, ranks, n, nodes;
    const i64 *rank, *start;
    const uint8_t *op;
    const int32_t *peer;
    const i64 *bytes;
    const int32_t *peer2; /* the receive half of SENDRECV; NULL where there is none */
    const i64 *bytes2;
    const int32_t *number; /* of WAITSOME; NULL where there is none */
    const i64 *done_start;
    const int32_t *done, *to, *source;
    const int32_t *cell; /* NULL: times are not added up */
    const i64 *node_of;
    const unsigned char *path_of; /* nodes x nodes, or NULL: same inside, other between */
    i64 same, other;
    i64 calls;
    const i64 *call_step; /* of each collective call its step, ascending */
};

/* A step as the simulation has it: all that nobody changes, together in memory, as it waits for
 * memory more than it computes. Steps have numbers in the order of the ranks, and places in the
 * order that they are packed in. Steps are named by their places, -1: there is none. */
struct step {
    int32_t to, source, next;
    union {
        int32_t send; /* entry in the costs: of what it sends */
        int32_t done; /* of a wait: first of the list of the requests that it completes */
    };
    union {
        int32_t receive; /* of what it takes in when its sender is none of these ranks; of a
                          * collective: the number of its call */
        int32_t listed;  /* of a wait: how many */
    };
    int32_t cell, node; /* node: where what it sends goes; of WAITSOME: how many it completes */
    uint32_t owner : 24, op : 8; /* owner: the number of its rank */
};

/* What a message costs, by its way and size: found when steps are packed. */
struct size { i64 bytes; i64 path; };

struct packed {
    struct step *step;
    int32_t *done, *place, *first; /* place: of each number; first: of each rank */
    struct size *size;
    i64 sizes, room, longest, flaw, where;
};

struct input {
    i64 steps, ranks, nodes, instances, sizes, longest;
    const i64 *rank;
    const struct step *step;
    const int32_t *done, *first;
    const int32_t *number; /* of each place, NULL: they are the same */
    const struct size *size;
    const double *work, *first_ns, *extra; /* extra: NULL, or added to what each transfer takes */
    double slower; /* work takes the slower-th part of it */
    /* How often each step is added up, NULL: times are put out as they are; group: NULL: there are
     * none, 0: in none, APART: the step is passed over. All by place, as work and extra. */
    const double *weight;
    const uint8_t *group;
    const i64 *node_of;
    const i64 *curve_start, *linked;   /* four curves per path, see price */
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
    /* Collective calls by number, and the instances they take part in. */
    const i64 *call_step, *call_instance; /* steps by place */
    const double *call_ns;
    const i64 *kind, *member_start, *member, *expected, *root;
};

/* What other ranks ask of a step, together in memory: begin of its call; of what it sends, begin of
 * the transfer and arrival. */
struct live { double begin, began, arrival; };

/* Weighted sums of times of calls. */
struct sum { double whole, waiting, transfer, software; };

struct output {
    struct live *live;
    uint8_t *state;
    double *end, *waiting, *software;
    struct sum *sums; /* of each cell */
    double *longs;    /* of each group and rank */
    i64 *at; /* the step that each rank is in, -1: it is done */
    int32_t *order; /* NULL, or the steps in the order in which they began */
    i64 begun, queued, loosened;
};

/* load: bytes that would keep a node's link busy for as long as the message does. */
struct cost { double transfer, send, receive, latency, load, bytes; int path, linked, large; };
/* what: kind, hop, number of the step or rank; place: of the step. */
struct event { double ns; i64 what; i64 place; };
struct item { double door, here, began, cost; };
struct pick { double ns; i64 step, place; };

struct sim {
    const struct input *in;
    struct output *out;
    struct live *live;
    uint8_t *state;
    const struct step *step;
    int32_t *pending;
    unsigned char *queued;
    double *clock, *choice, *egress, *ingress, *trunk, *latest;
    i64 *runnable, *arrived, *next;
    i64 runnables, events, event_room;
    struct cost *costs;
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

static i64 number_of(const struct sim *s, i64 step)
{
    return s->in->number ? s->in->number[step] : step;
}

/* Of a step at the hop-th link of its message's way. */
static struct event event_at(const struct sim *s, double ns, int kind, i64 hop, i64 step)
{
    i64 number = number_of(s, step);
    struct event e = {ns, ((i64)kind << KIND_BITS) | (hop << HOP_BITS) | number, step};
    return e;
}

static struct event event(const struct sim *s, double ns, int kind, i64 step)
{
    return event_at(s, ns, kind, 0, step);
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

static void price(const struct input *in, const struct size *size, struct cost *c)
{
    i64 path = size->path;
    double bytes = (double)size->bytes;
    c->bytes = bytes;
    c->path = (int)path;
    c->transfer = along(in, 4 * path, bytes);
    c->latency = along(in, 4 * path, 0);
    c->send = along(in, 4 * path + 1, bytes);
    c->receive = along(in, 4 * path + 2, bytes);
    double busy = isfinite(in->rate) ? in->rate * along(in, 4 * path + 3, bytes) : 0;
    c->load = busy > bytes ? busy : bytes;
    c->linked = in->linked[path] && (isfinite(in->rate) || in->place_of);
    c->large = bytes > in->eager[path];
}

/* The costs of what a step sends. */
static const struct cost *sent(const struct sim *s, i64 i) { return &s->costs[s->step[i].send]; }
