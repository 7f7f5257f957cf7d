/* Packets of one phase on the links of a network, cycle by cycle.

   In a cycle each link with packets moves the first of its queue (as many as its rate allows); those
   that arrive join the queue of their next link, or are received, in an order that is drawn; then
   each injection queue offers its first packet to its first link, which takes it while fewer than
   `room` wait there. Queues of links are unlimited, so nothing can lock. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t links, nodes, queues, messages, dims;
    int64_t room;      /* of a link's queue, for packets that are injected */
    int64_t reception; /* packets that a node takes in in a cycle, 0: all */
    int64_t wrap;      /* adaptive on a torus (1) or mesh (0) */
    uint64_t seed;
    /* messages, in the order in which they are posted */
    const int64_t *queue, *dest, *packets, *first, *last;
    const double *nbytes; /* of one packet */
    const int64_t *route; /* links of all routes; those of a message are first .. last - 1 */
    const int64_t *extent, *source;
    const double *rate; /* packets that each link moves in a cycle */
    double *sent_bytes;
    int64_t *received, *buffered;
} Phase;

typedef struct { int32_t message, next; int64_t at; } Packet; /* at: place in the route, or node */
typedef struct { int32_t head, tail, length, listed; } Queue;
typedef struct { int64_t *item; int64_t count; } List;

typedef struct {
    const Phase *in;
    Packet *pool;
    int32_t unused;
    int64_t size;
    Queue *link;
    double *credit;
    List active, injecting, receiving, arrived, over;
    int64_t *waiting;  /* packets that each node has yet to take in */
    int64_t *head, *following; /* first message of each injection queue, next of each message */
    int64_t *left;     /* packets that each message has yet to inject */
    uint64_t state;
    int64_t pending;
} Run;

static uint64_t drawn(Run *r, uint64_t below) {
    uint64_t x = r->state;
    x ^= x << 13; x ^= x >> 7; x ^= x << 17;
    r->state = x;
    return (uint64_t)(((unsigned __int128)x * below) >> 64);
}

static int list(List *l, int64_t room) {
    l->count = 0;
    l->item = malloc(sizeof(int64_t) * (size_t)(room + 1));
    return l->item != NULL;
}

/* An unused packet; -1: no memory. */
static int32_t taken(Run *r) {
    if (r->unused < 0) {
        int64_t more = r->size * 2;
        Packet *grown = more > INT32_MAX ? NULL : realloc(r->pool, sizeof(Packet) * (size_t)more);
        if (!grown) return -1;
        r->pool = grown;
        for (int64_t k = r->size; k < more; k++) grown[k].next = k + 1 < more ? (int32_t)(k + 1) : -1;
        r->unused = (int32_t)r->size;
        r->size = more;
    }
    int32_t found = r->unused;
    r->unused = r->pool[found].next;
    return found;
}

static void push(Run *r, int64_t link, int32_t packet) {
    Queue *q = &r->link[link];
    r->pool[packet].next = -1;
    if (q->length++) r->pool[q->tail].next = packet;
    else q->head = packet;
    q->tail = packet;
    if (!q->listed) {
        q->listed = 1;
        r->active.item[r->active.count++] = link;
    }
}

/* How far from one node to another in a dimension, below 0: downwards. */
static int64_t steps(const Phase *in, int64_t dim, int64_t stride, int64_t from, int64_t to) {
    int64_t extent = in->extent[dim], ahead = to / stride % extent - from / stride % extent;
    if (!in->wrap) return ahead;
    int64_t up = ((ahead % extent) + extent) % extent;
    return 2 * up <= extent ? up : up - extent;
}

/* The shortest queue that brings a packet nearer; *next: the node behind it. -1: it is there. */
static int64_t shortest(Run *r, int64_t node, int64_t dest, int64_t *next) {
    const Phase *in = r->in;
    int64_t found = -1, stride = 1;
    for (int64_t d = 0; d < in->dims; stride *= in->extent[d++]) {
        int64_t step = steps(in, d, stride, node, dest), extent = in->extent[d];
        if (!step) continue;
        int64_t at = node / stride % extent, to = (at + (step > 0 ? 1 : extent - 1)) % extent;
        int64_t other = node + (to - at) * stride, low = step > 0 ? node : other;
        int64_t link = 2 * (in->nodes * (1 + d) + low) + (step < 0);
        if (found < 0 || r->link[link].length < r->link[found].length) {
            found = link;
            *next = other;
        }
    }
    return found;
}

/* Each link moves what it can; what has arrived is in r->arrived, over which link in r->over. */
static void move_packets(Run *r) {
    const Phase *in = r->in;
    int64_t kept = 0;
    r->arrived.count = r->over.count = 0;
    for (int64_t k = 0; k < r->active.count; k++) {
        int64_t link = r->active.item[k];
        Queue *q = &r->link[link];
        r->credit[link] += in->rate[link];
        while (q->length && r->credit[link] >= 1.0) {
            int32_t packet = q->head;
            q->head = r->pool[packet].next;
            q->length--;
            r->credit[link] -= 1.0;
            in->sent_bytes[link] += in->nbytes[r->pool[packet].message];
            in->received[link]++;
            r->arrived.item[r->arrived.count++] = packet;
            r->over.item[r->over.count++] = link;
        }
        if (q->length) r->active.item[kept++] = link;
        else { q->listed = 0; r->credit[link] = 0.0; }
    }
    r->active.count = kept;
}

static void receive(Run *r, int64_t link, int32_t packet) {
    const Phase *in = r->in;
    int64_t node = in->dest[r->pool[packet].message];
    r->pool[packet].next = r->unused;
    r->unused = packet;
    if (!in->reception) { r->pending--; return; }
    if (r->waiting[node]) in->buffered[link]++;
    else r->receiving.item[r->receiving.count++] = node;
    r->waiting[node]++;
}

static void arrive(Run *r) {
    const Phase *in = r->in;
    for (int64_t k = r->arrived.count - 1; k >= 0; k--) {
        int64_t other = (int64_t)drawn(r, (uint64_t)k + 1);
        int32_t packet = (int32_t)r->arrived.item[other];
        int64_t link = r->over.item[other], next = -1;
        r->arrived.item[other] = r->arrived.item[k];
        r->over.item[other] = r->over.item[k];
        Packet *p = &r->pool[packet];
        if (in->dims) {
            int64_t behind = p->at;
            next = shortest(r, p->at, in->dest[p->message], &behind);
            if (next >= 0) p->at = behind;
        } else if (p->at < in->last[p->message]) next = in->route[p->at++];
        if (next < 0) { receive(r, link, packet); continue; }
        if (r->link[next].length) in->buffered[link]++;
        push(r, next, packet);
    }
    int64_t kept = 0;
    for (int64_t k = 0; k < r->receiving.count; k++) {
        int64_t node = r->receiving.item[k];
        int64_t done = r->waiting[node] < in->reception ? r->waiting[node] : in->reception;
        r->waiting[node] -= done;
        r->pending -= done;
        if (r->waiting[node]) r->receiving.item[kept++] = node;
    }
    r->receiving.count = kept;
}

/* Each injection queue offers a packet; 0: no memory. */
static int inject(Run *r) {
    const Phase *in = r->in;
    int64_t count = r->injecting.count, kept = 0;
    int64_t begin = count ? (int64_t)drawn(r, (uint64_t)count) : 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t queue = r->injecting.item[(begin + k) % count], message = r->head[queue];
        int64_t next = in->source[message];
        int64_t link = in->dims ? shortest(r, next, in->dest[message], &next)
                                : in->route[in->first[message]];
        if (r->link[link].length >= in->room) continue;
        int32_t packet = taken(r);
        if (packet < 0) return 0;
        r->pool[packet].message = (int32_t)message;
        r->pool[packet].at = in->dims ? next : in->first[message] + 1;
        push(r, link, packet);
        if (--r->left[message] == 0) r->head[queue] = r->following[message];
    }
    for (int64_t k = 0; k < count; k++)
        if (r->head[r->injecting.item[k]] >= 0) r->injecting.item[kept++] = r->injecting.item[k];
    r->injecting.count = kept;
    return 1;
}

static int begun(Run *r, const Phase *in, int64_t moved) {
    memset(r, 0, sizeof *r);
    r->in = in;
    r->state = in->seed * 0x9E3779B97F4A7C15ULL + 0x632BE59BD9B4E019ULL;
    if (!r->state) r->state = 1;
    r->size = 1024;
    r->pool = malloc(sizeof(Packet) * (size_t)r->size);
    r->link = calloc((size_t)in->links + 1, sizeof(Queue));
    r->credit = calloc((size_t)in->links + 1, sizeof(double));
    r->waiting = calloc((size_t)in->nodes + 1, sizeof(int64_t));
    r->head = malloc(sizeof(int64_t) * (size_t)(in->queues + 1));
    r->following = malloc(sizeof(int64_t) * (size_t)(in->messages + 1));
    r->left = malloc(sizeof(int64_t) * (size_t)(in->messages + 1));
    int lists = list(&r->active, in->links) && list(&r->injecting, in->queues)
        && list(&r->receiving, in->nodes) && list(&r->arrived, moved) && list(&r->over, moved);
    if (!lists || !r->pool || !r->link || !r->credit || !r->waiting || !r->head || !r->following
        || !r->left)
        return 0;
    for (int64_t k = 0; k < r->size; k++) r->pool[k].next = k + 1 < r->size ? (int32_t)(k + 1) : -1;
    for (int64_t k = 0; k < in->queues; k++) r->head[k] = -1;
    for (int64_t m = in->messages - 1; m >= 0; m--) {
        r->following[m] = r->head[in->queue[m]];
        r->head[in->queue[m]] = m;
        r->left[m] = in->packets[m];
        r->pending += in->packets[m];
    }
    for (int64_t k = 0; k < in->queues; k++)
        if (r->head[k] >= 0) r->injecting.item[r->injecting.count++] = k;
    return 1;
}

static void ended(Run *r) {
    List *lists[] = {&r->active, &r->injecting, &r->receiving, &r->arrived, &r->over};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) free(lists[k]->item);
    free(r->pool); free(r->link); free(r->credit); free(r->waiting);
    free(r->head); free(r->following); free(r->left);
}

/* Run a phase until everything is received; `moved`: packets that all links may move in a cycle.
   Returns the cycles, -1: no memory, -2: more than `most` cycles. */
int64_t p3s_packets(const Phase *in, int64_t moved, int64_t most) {
    Run r;
    int64_t cycles = begun(&r, in, moved) ? 0 : -1;
    while (cycles >= 0 && r.pending) {
        move_packets(&r);
        arrive(&r);
        cycles = !inject(&r) ? -1 : ++cycles > most ? -2 : cycles;
    }
    ended(&r);
    return cycles;
}
