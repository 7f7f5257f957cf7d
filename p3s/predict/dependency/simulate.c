/* Dependency simulation of the calls of all ranks; simulate.py says what each number means.
 *
 * Every rank runs ahead until a call needs what is not known yet. What several messages share (a
 * node's link, the order in which WAITANY finds them) is decided from a heap by time, and only when
 * no rank can go on: all that happens later is then later than the heap's least time, so that links
 * serve first come, first served and the result does not depend on the order ranks are taken in.
 */
#include "state.h"

#include "messages.h"

/* ---- ends of calls ---- */

static int by_door(const void *a, const void *b)
{
    double x = ((const struct item *)a)->door, y = ((const struct item *)b)->door;
    return (x > y) - (x < y);
}

/* Takes messages in, one after the other as they come; returns when the last one is in. */
static double take_in(struct item *items, i64 n, double ns)
{
    if (n > 24)
        qsort(items, (size_t)n, sizeof *items, by_door);
    else
        for (i64 i = 1; i < n; i++) {
            struct item item = items[i];
            i64 k = i;
            for (; k && items[k - 1].door > item.door; k--)
                items[k] = items[k - 1];
            items[k] = item;
        }
    for (i64 i = 0; i < n; i++) {
        ns += items[i].cost;
        if (items[i].here > ns)
            ns = items[i].here;
    }
    return ns;
}

/* Ends step i of rank r: its own time `own`, then n messages in s->items. It takes `least` at least,
 * and lasts till `till`, or till `timely` had all partners begun with the call. */
static void close(struct sim *s, i64 r, i64 i, double own, i64 n, double least, double till,
                  double timely)
{
    double begin = s->out->begin[i], end, in_time, software = own;
    int late = 0;
    for (i64 k = 0; k < n; k++) {
        software += s->items[k].cost;
        late |= s->items[k].began > begin;
    }
    software = software > least ? software : least;
    end = in_time = take_in(s->items, n, begin + own);
    if (late) {
        for (i64 k = 0; k < n; k++)
            if (s->items[k].began > begin) {
                s->items[k].here -= s->items[k].began - begin;
                s->items[k].door -= s->items[k].began - begin;
            }
        in_time = take_in(s->items, n, begin + own);
    }
    till = till > begin + least ? till : begin + least;
    timely = timely > begin + least ? timely : begin + least;
    end = end > till ? end : till;
    in_time = in_time > timely ? in_time : timely;
    in_time = in_time < end ? in_time : end;
    s->out->end[i] = s->clock[r] = end;
    s->out->waiting[i] = end - in_time;
    s->out->software[i] = software < in_time - begin ? software : in_time - begin;
    s->out->at[r]++;
}

/* Counts something that ends at `ns` and began at `began` in the ends of a call. */
static void count(double ns, double began, double begin, double *till, double *timely)
{
    *till = *till > ns ? *till : ns;
    ns -= began > begin ? began - begin : 0;
    *timely = *timely > ns ? *timely : ns;
}

/* Whether it is known when request q is complete; then when, for a choice. */
static int complete(struct sim *s, i64 q, double *ns)
{
    struct item item;
    switch (s->in->op[q]) {
    case IRECV: case START_RECV:
        if (!received(s, q, &item))
            return 0;
        *ns = item.here;
        return 1;
    case ICOLLECTIVE:
        *ns = s->out->arrival[q];
        return s->out->state[q] & ARRIVED;
    default:
        if (!(s->out->state[q] & MEETS)) {
            *ns = s->out->end[q];
            return 1;
        }
        if (!(s->out->state[q] & ARRIVED))
            return 0;
        *ns = rid(s, q);
        return 1;
    }
}

static unsigned char want_of(const struct sim *s, i64 q)
{
    i64 op = s->in->op[q];
    return op == IRECV || op == START_RECV || op == ICOLLECTIVE ? WANT_HERE : WANT_SENT;
}

/* Adds a complete request to what ends step i. */
static i64 gather(struct sim *s, i64 i, i64 q, i64 n, double *till, double *timely)
{
    i64 op = s->in->op[q];
    s->out->state[q] |= USED;
    if (op == IRECV || op == START_RECV)
        return n + received(s, q, &s->items[n]);
    if (op == ICOLLECTIVE)
        count(s->out->arrival[q], s->out->began[q], s->out->begin[i], till, timely);
    else if (s->out->state[q] & MEETS)
        count(rid(s, q), s->out->began[q], s->out->begin[i], till, timely);
    return n;
}

/* Ends of a call that only starts something. */
static void go_on(struct sim *s, i64 r, i64 i, double own)
{
    close(s, r, i, own, 0, 0, 0, 0);
}

static int by_time(const void *a, const void *b)
{
    const struct pick *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* WAITANY, WAITSOME: ends it if what it completes is certain; `now`: by the heap it is. */
static int choose(struct sim *s, i64 r, i64 i, int now)
{
    const struct input *in = s->in;
    unsigned char *state = s->out->state;
    double begin = s->out->begin[i], ns = 0, till = 0, timely = 0;
    i64 active = 0, found = 0, n = 0, wanted = in->op[i] == WAITANY ? 1 : in->number[i];
    for (i64 d = in->done_start[i]; d < in->done_start[i + 1]; d++) {
        i64 q = in->done[d];
        if (state[q] & USED)
            continue;
        active++;
        if (!complete(s, q, &ns)) {
            state[q] |= want_of(s, q);
            continue;
        }
        struct pick pick = {ns > begin ? ns : begin, q, d};
        s->picks[found++] = pick;
    }
    wanted = wanted < active ? wanted : active;
    qsort(s->picks, (size_t)found, sizeof *s->picks, by_time);
    if (found < active && !now) {
        if (found >= wanted && wanted && s->picks[wanted - 1].ns < s->choice[r]) {
            s->choice[r] = s->picks[wanted - 1].ns;
            push(s, event(s->choice[r], CHOICE, r));
        }
        if (wanted)
            return 0;
    }
    for (i64 d = in->done_start[i]; d < in->done_start[i + 1]; d++)
        state[in->done[d]] &= (unsigned char)~want_of(s, in->done[d]);
    for (i64 k = 0; k < wanted; k++)
        n = gather(s, i, s->picks[k].step, n, &till, &timely);
    s->choice[r] = INFINITY;
    close(s, r, i, 0, n, in->post, till, timely);
    return 1;
}

/* WAIT: false while a request is outstanding. */
static int wait_all(struct sim *s, i64 r, i64 i)
{
    const struct input *in = s->in;
    double ns = 0, till = 0, timely = 0;
    i64 n = 0, first = in->done_start[i], last = in->done_start[i + 1];
    for (i64 d = first; d < last; d++) {
        i64 q = in->done[d];
        if (!(s->out->state[q] & (USED | want_of(s, q))) && !complete(s, q, &ns)) {
            s->out->state[q] |= want_of(s, q);
            s->pending[r]++;
        }
    }
    if (s->pending[r])
        return 0;
    for (i64 d = first; d < last; d++)
        if (!(s->out->state[in->done[d]] & USED))
            n = gather(s, i, in->done[d], n, &till, &timely);
    close(s, r, i, 0, n, in->post, till, timely);
    return 1;
}

/* A blocking send or receive or both: false while it cannot end. `own`: of its send half. */
static int blocking(struct sim *s, i64 r, i64 i)
{
    i64 op = s->in->op[i], n = 0;
    double own = 0, till = 0, timely = 0;
    if (op != RECV) {
        unsigned char state = s->out->state[i];
        if ((state & (MEETS | ARRIVED)) == MEETS) {
            s->out->state[i] |= WANT_SENT;
            s->pending[r]++;
        } else if (state & MEETS)
            count(rid(s, i), s->out->began[i], s->out->begin[i], &till, &timely);
        own = state & MEETS || s->in->peer[i] < 0 ? s->in->post : s->kinds[s->cost[i]].send;
    }
    if (op == RECV || op == SENDRECV) {
        if (!received(s, i, &s->items[0])) {
            s->out->state[i] |= WANT_HERE;
            s->pending[r]++;
        }
        n = 1;
    }
    if (s->pending[r])
        return 0;
    close(s, r, i, own, n, 0, till, timely);
    return 1;
}

/* ---- collectives that are not expanded ---- */

static void over(struct sim *s, i64 call, double began, double ns)
{
    i64 step = s->in->call_step[call];
    s->out->began[step] = began;
    s->out->arrival[step] = ns;
    s->out->state[step] |= ARRIVED;
    known(s, step, WANT_HERE);
}

static void all_over(struct sim *s, i64 instance, double least)
{
    const struct input *in = s->in;
    for (i64 m = in->member_start[instance]; m < in->member_start[instance + 1]; m++) {
        i64 call = in->member[m], step = in->call_step[call];
        double began = s->out->begin[step];
        if ((s->out->state[step] & (BEGUN | ARRIVED)) != BEGUN)
            continue;
        began = began > least ? began : least;
        over(s, call, began, began + in->call_ns[call]);
    }
}

/* Members before are over: goes along the chain as far as members have begun. */
static void along_chain(struct sim *s, i64 instance)
{
    const struct input *in = s->in;
    i64 m = in->member_start[instance] + s->next[instance];
    for (; m < in->member_start[instance + 1]; m++, s->next[instance]++) {
        i64 call = in->member[m], step = in->call_step[call];
        if (!(s->out->state[step] & BEGUN))
            return;
        double began = s->out->begin[step];
        began = began > s->latest[instance] ? began : s->latest[instance];
        s->latest[instance] = began + in->call_ns[call];
        over(s, call, began, s->latest[instance]);
    }
}

static void join(struct sim *s, i64 r, i64 i)
{
    const struct input *in = s->in;
    i64 call = s->call[r]++, g = in->call_instance[call], root = in->root[g];
    double ns = s->out->begin[i];
    s->arrived[g]++;
    if (in->kind[g] == CHAIN) {
        along_chain(s, g);
        return;
    }
    if (in->kind[g] == FROM_ROOT) {
        double from = root < 0 ? ns : s->out->begin[in->call_step[root]];
        if (call == root)
            all_over(s, g, ns);
        else if (root < 0 || s->out->state[in->call_step[root]] & BEGUN)
            over(s, call, from > ns ? from : ns, (from > ns ? from : ns) + in->call_ns[call]);
        return;
    }
    s->latest[g] = s->latest[g] > ns ? s->latest[g] : ns;
    if (in->kind[g] == TO_ROOT && call != root) {
        double own = in->post;
        if (in->peer[i] >= 0) {
            int path = path_between(in, rank_of(s, i), in->peer[i]);
            own = s->kinds[cost_of(s, path, in->bytes[i])].send;
        }
        over(s, call, ns, ns + own);
    }
    if (s->arrived[g] < in->expected[g])
        return;
    if (in->kind[g] == TOGETHER)
        all_over(s, g, s->latest[g]);
    else if (root >= 0)
        over(s, root, s->latest[g], s->latest[g] + in->call_ns[root]);
}

static int collective(struct sim *s, i64 r, i64 i)
{
    double till = 0, timely = 0;
    if (!(s->out->state[i] & ARRIVED)) {
        s->out->state[i] |= WANT_HERE;
        s->pending[r]++;
        return 0;
    }
    count(s->out->arrival[i], s->out->began[i], s->out->begin[i], &till, &timely);
    close(s, r, i, 0, 0, 0, till, timely);
    return 1;
}

/* ---- steps ---- */

/* Tries to end the step that rank r is in. */
static int finish(struct sim *s, i64 r, i64 i)
{
    switch (s->in->op[i]) {
    case WAIT:
        return wait_all(s, r, i);
    case WAITANY: case WAITSOME:
        return choose(s, r, i, 0);
    case COLLECTIVE:
        return collective(s, r, i);
    default:
        return blocking(s, r, i);
    }
}

/* Goes on with rank r until it has to wait or is done. */
static void run(struct sim *s, i64 r)
{
    const struct input *in = s->in;
    unsigned char *state = s->out->state;
    for (i64 i = s->out->at[r]; i < in->start[r + 1]; i = s->out->at[r]) {
        int first = !(state[i] & BEGUN);
        if (first) {
            s->out->begin[i] = s->clock[r] + in->work[i];
            state[i] |= BEGUN;
        }
        switch (in->op[i]) {
        case REST:
            go_on(s, r, i, 0);
            continue;
        case ISEND: case ISSEND: case START_SEND: case START_SSEND: case BSEND:
            go_on(s, r, i, send(s, i));
            continue;
        case IRECV: case START_RECV:
            post_receive(s, i);
            go_on(s, r, i, in->post);
            continue;
        case ICOLLECTIVE:
            join(s, r, i);
            go_on(s, r, i, in->post);
            continue;
        case SEND: case SSEND: case SENDRECV:
            if (first)
                send(s, i);
            if (first && in->op[i] == SENDRECV)
                post_receive(s, i);
            break;
        case RECV:
            if (first)
                post_receive(s, i);
            break;
        case COLLECTIVE:
            if (first)
                join(s, r, i);
        }
        if (!finish(s, r, i))
            return;
    }
}

static void handle(struct sim *s, struct event e)
{
    i64 what = e.what & (((i64)1 << 56) - 1);
    switch (e.what >> 56) {
    case BOTH_IN_CALL:
        both_in_call(s, what, e.ns);
        break;
    case EGRESS:
        out_of_node(s, what, e.ns);
        break;
    case INGRESS:
        into_node(s, what, e.ns);
        break;
    default:
        if (s->choice[what] == e.ns) {
            s->choice[what] = INFINITY;
            if (choose(s, what, s->out->at[what], 1))
                wake(s, what);
        }
    }
}

static void *room(struct sim *s, i64 number, size_t size)
{
    void *found = calloc((size_t)(number > 0 ? number : 1), size);
    s->failed |= !found;
    return found;
}

static int prepare(struct sim *s)
{
    const struct input *in = s->in;
    i64 longest = 1;
    s->owner = room(s, in->steps, sizeof *s->owner);
    s->cost = room(s, in->steps, sizeof *s->cost);
    s->pending = room(s, in->ranks, sizeof *s->pending);
    s->queued = room(s, in->ranks, 1);
    s->clock = room(s, in->ranks, sizeof *s->clock);
    s->choice = room(s, in->ranks, sizeof *s->choice);
    s->runnable = room(s, in->ranks, sizeof *s->runnable);
    s->call = room(s, in->ranks, sizeof *s->call);
    s->egress = room(s, in->nodes, sizeof *s->egress);
    s->ingress = room(s, in->nodes, sizeof *s->ingress);
    s->latest = room(s, in->instances, sizeof *s->latest);
    s->arrived = room(s, in->instances, sizeof *s->arrived);
    s->next = room(s, in->instances, sizeof *s->next);
    if (s->failed || !grow_costs(s))
        return 0;
    for (i64 i = 0; i < in->nodes; i++)
        s->egress[i] = s->ingress[i] = -INFINITY;
    for (i64 i = 0; i < in->instances; i++)
        s->latest[i] = -INFINITY;
    for (i64 r = in->ranks - 1; r >= 0; r--) {
        for (i64 i = in->start[r]; i < in->start[r + 1]; i++) {
            i64 listed = in->done_start[i + 1] - in->done_start[i];
            longest = listed > longest ? listed : longest;
            s->owner[i] = (int32_t)r;
            s->out->state[i] = 0;
            s->out->began[i] = s->out->arrival[i] = NAN;
        }
        s->out->at[r] = in->start[r];
        s->clock[r] = in->first_ns[r];
        s->call[r] = in->call_start[r];
        s->choice[r] = INFINITY;
        wake(s, r);
    }
    s->items = room(s, longest, sizeof *s->items);
    s->picks = room(s, longest, sizeof *s->picks);
    return !s->failed;
}

int p3s_simulate(const struct input *in, struct output *out)
{
    struct sim sim = {.in = in, .out = out}, *s = &sim;
    int result = DONE;
    out->messages = out->queued = 0;
    if (prepare(s))
        for (;;) {
            while (s->runnables && !s->failed) {
                i64 r = s->runnable[--s->runnables];
                s->queued[r] = 0;
                run(s, r);
            }
            if (!s->events || s->failed)
                break;
            handle(s, pop(s));
        }
    for (i64 r = 0; r < in->ranks && !s->failed; r++)
        if (out->at[r] < in->start[r + 1])
            result = DEADLOCK;
    void *all[] = {s->owner, s->cost, s->pending, s->table, s->queued, s->clock, s->choice,
                   s->egress, s->ingress, s->latest, s->runnable, s->call, s->arrived, s->next,
                   s->kinds, s->heap, s->items, s->picks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return s->failed ? NO_MEMORY : result;
}
