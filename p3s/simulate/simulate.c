/* Dependency simulation of the calls of all ranks; simulate.py says what each number means.
 *
 * Every rank runs ahead until a call needs what is not known yet. What several messages share (a
 * node's link, the order in which WAITANY finds them) is decided from a heap by time, and only when
 * no rank can go on: all that happens later is then later than the heap's least time, so that links
 * serve first come, first served and the result does not depend on the order ranks are taken in.
 */
#include "state.h"

#include "pack.h"

#include "messages.h"

#include "fair.h"

#include "ends.h"

/* ---- collectives that are not expanded ---- */

static void over(struct sim *s, i64 call, double began, double ns)
{
    i64 step = s->in->call_step[call];
    s->live[step].began = began;
    s->live[step].arrival = ns;
    s->state[step] |= ARRIVED;
    known(s, step, WANT_HERE);
}

static void all_over(struct sim *s, i64 instance, double least)
{
    const struct input *in = s->in;
    for (i64 m = in->member_start[instance]; m < in->member_start[instance + 1]; m++) {
        i64 call = in->member[m], step = in->call_step[call];
        double began = s->live[step].begin;
        if ((s->state[step] & (BEGUN | ARRIVED)) != BEGUN)
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
        if (!(s->state[step] & BEGUN))
            return;
        double began = s->live[step].begin;
        began = began > s->latest[instance] ? began : s->latest[instance];
        s->latest[instance] = began + in->call_ns[call];
        over(s, call, began, s->latest[instance]);
    }
}

static void join(struct sim *s, i64 i)
{
    const struct input *in = s->in;
    i64 call = s->step[i].receive, g = in->call_instance[call], root = in->root[g];
    double ns = s->live[i].begin;
    s->arrived[g]++;
    if (in->kind[g] == CHAIN) {
        along_chain(s, g);
        return;
    }
    if (in->kind[g] == FROM_ROOT) {
        double from = root < 0 ? ns : s->live[in->call_step[root]].begin;
        if (call == root)
            all_over(s, g, ns);
        else if (root < 0 || s->state[in->call_step[root]] & BEGUN)
            over(s, call, from > ns ? from : ns, (from > ns ? from : ns) + in->call_ns[call]);
        return;
    }
    s->latest[g] = s->latest[g] > ns ? s->latest[g] : ns;
    if (in->kind[g] == TO_ROOT && call != root) {
        over(s, call, ns, ns + (s->step[i].send < 0 ? in->post : sent(s, i)->send));
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
    if (!(s->state[i] & ARRIVED)) {
        s->state[i] |= WANT_HERE;
        s->pending[r]++;
        return 0;
    }
    count(s->live[i].arrival, s->live[i].began, s->live[i].begin, &till, &timely);
    close(s, r, i, 0, 0, 0, till, timely);
    return 1;
}

/* ---- steps ---- */

/* Tries to end the step that rank r is in. */
static int finish(struct sim *s, i64 r, i64 i)
{
    switch (s->step[i].op) {
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
    for (i64 i = s->out->at[r]; i >= 0; i = s->out->at[r]) {
        i64 op = s->step[i].op;
        int first = !(s->state[i] & BEGUN);
        if (first) {
            s->live[i] = (struct live){s->clock[r] + in->work[i] / in->slower, NAN, NAN};
            s->state[i] |= BEGUN;
            if (s->out->order)
                s->out->order[s->out->begun] = number_of(s, i);
            s->out->begun++;
        }
        switch (op) {
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
            join(s, i);
            go_on(s, r, i, in->post);
            continue;
        case SEND: case SSEND: case SENDRECV:
            if (first)
                send(s, i);
            if (first && op == SENDRECV)
                post_receive(s, i);
            break;
        case RECV:
            if (first)
                post_receive(s, i);
            break;
        case COLLECTIVE:
            if (first)
                join(s, i);
        }
        if (!finish(s, r, i))
            return;
    }
}

static void handle(struct sim *s, struct event e)
{
    i64 what = e.place, hop = e.what >> HOP_BITS & (((i64)1 << (KIND_BITS - HOP_BITS)) - 1);
    switch (e.what >> KIND_BITS) {
    case BOTH_IN_CALL:
        both_in_call(s, what, e.ns);
        break;
    case ANNOUNCE:
        announce(s, what, hop, e.ns);
        break;
    case ANSWER:
        answer(s, what, hop, e.ns);
        break;
    case EGRESS:
        if (s->fluid)
            flow_begins(s, what, e.ns);
        else
            out_of_node(s, what, e.ns);
        break;
    case TRUNK:
        over_trunk(s, what, hop, e.ns);
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

/* ---- ranks that wait for each other for ever ---- */

static int outstanding(struct sim *s, i64 q)
{
    double ns;
    return !(s->state[q] & USED) && !complete(s, q, &ns);
}

/* A send that waits for its receiver goes on as if it were buffered. */
static i64 let_go(struct sim *s, i64 i)
{
    if ((s->state[i] & (MEETS | ARRIVED)) != MEETS)
        return 0;
    s->state[i] = (uint8_t)((s->state[i] & ~MEETS) | LET_GO);
    transfer(s, i, s->live[i].begin);
    known(s, i, WANT_SENT);
    return 1;
}

/* A receive or a collective ends as if nobody had to be waited for. */
static void cut(struct sim *s, i64 i)
{
    i64 op = s->step[i].op;
    s->state[i] |= CUT;
    if (op == COLLECTIVE || op == ICOLLECTIVE) {
        s->live[i].began = s->live[i].arrival = s->live[i].begin;
        s->state[i] |= ARRIVED;
    }
    known(s, i, WANT_HERE);
}

/* Lets all sends go that ranks wait for; if there is none, cuts what the rank waits for that is in
 * its call for the longest time. Returns whether there was anything. */
static int loosen(struct sim *s)
{
    const struct input *in = s->in;
    i64 found = 0, first = -1;
    for (i64 r = 0; r < in->ranks; r++) {
        i64 i = s->out->at[r];
        if (i < 0)
            continue;
        if (first < 0 || s->live[i].begin < s->live[s->out->at[first]].begin)
            first = r;
        found += let_go(s, i);
        for (i64 d = 0; is_wait(s->step[i].op) && d < s->step[i].listed; d++) {
            i64 q = in->done[s->step[i].done + d];
            found += want_of(s, q) == WANT_SENT && let_go(s, q);
        }
    }
    s->out->loosened |= first >= 0;
    if (found || first < 0)
        return first >= 0;
    const struct step *step = &s->step[s->out->at[first]];
    if (!is_wait(step->op))
        cut(s, s->out->at[first]);
    for (i64 d = 0; is_wait(step->op) && d < step->listed; d++)
        if (outstanding(s, in->done[step->done + d])) {
            cut(s, in->done[step->done + d]);
            if (step->op != WAIT)
                break;
        }
    return 1;
}

static int prepare(struct sim *s)
{
    const struct input *in = s->in;
    s->live = s->out->live;
    s->state = s->out->state;
    s->step = in->step;
    s->pending = room(s, in->ranks, sizeof *s->pending);
    s->queued = room(s, in->ranks, 1);
    s->clock = room(s, in->ranks, sizeof *s->clock);
    s->choice = room(s, in->ranks, sizeof *s->choice);
    s->runnable = room(s, in->ranks, sizeof *s->runnable);
    s->egress = room(s, in->nodes, sizeof *s->egress);
    s->ingress = room(s, in->nodes, sizeof *s->ingress);
    s->trunk = room(s, in->trunks, sizeof *s->trunk);
    s->latest = room(s, in->instances, sizeof *s->latest);
    s->arrived = room(s, in->instances, sizeof *s->arrived);
    s->next = room(s, in->instances, sizeof *s->next);
    s->costs = room(s, in->sizes, sizeof *s->costs);
    if (s->failed)
        return 0;
    for (i64 i = 0; i < in->nodes; i++)
        s->egress[i] = s->ingress[i] = -INFINITY;
    for (i64 i = 0; i < in->trunks; i++)
        s->trunk[i] = -INFINITY;
    for (i64 i = 0; i < in->instances; i++)
        s->latest[i] = -INFINITY;
    for (i64 k = 0; k < in->sizes; k++)
        price(in, &in->size[k], &s->costs[k]);
    memset(s->state, 0, (size_t)in->steps);
    for (i64 r = in->ranks - 1; r >= 0; r--) {
        i64 i = in->first[r];
        s->out->at[r] = i >= 0 && in->group && in->group[i] == APART ? following(s, i) : i;
        s->clock[r] = in->first_ns[r];
        s->choice[r] = INFINITY;
        wake(s, r);
    }
    if (s->fluid && !fluid_prepare(s)) {
        s->failed = 1;
        return 0;
    }
    s->items = room(s, in->longest, sizeof *s->items);
    s->picks = room(s, in->longest, sizeof *s->picks);
    return !s->failed;
}

/* Goes on with what happens first; false: nothing does. */
static int happens(struct sim *s)
{
    struct fluid *f = s->fluid;
    if (f && (f->queued || f->freshes) && !(s->events && s->heap[0].ns <= f->now))
        settle(f);
    if (f && f->heaped && !(s->events && s->heap[0].ns <= f->flows[f->heap[0]].end)) {
        flow_ends(s);
        return 1;
    }
    if (!s->events)
        return 0;
    handle(s, pop(s));
    return 1;
}

int p3s_simulate(const struct input *in, struct output *out)
{
    struct fluid fluid = {0};
    struct sim sim = {.in = in, .out = out, .fluid = in->fair ? &fluid : NULL}, *s = &sim;
    int result = DONE;
    out->queued = out->begun = out->loosened = 0;
    if (prepare(s))
        for (;;) {
            while (s->runnables && !s->failed) {
                i64 r = s->runnable[--s->runnables];
                s->queued[r] = 0;
                run(s, r);
            }
            if (s->failed)
                break;
            if (!happens(s) && (!in->anyway || !loosen(s)))
                break;
        }
    for (i64 r = 0; r < in->ranks && !s->failed; r++)
        if (out->at[r] >= 0)
            result = DEADLOCK;
    void *all[] = {s->pending, s->queued, s->clock, s->choice,
                   s->egress, s->ingress, s->trunk, s->latest, s->runnable, s->arrived, s->next,
                   s->costs, s->heap, s->items, s->picks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    fluid_free(&fluid, in->trunks + 2 * in->nodes);
    return s->failed ? NO_MEMORY : result;
}
