/* Steps put together for the simulation: all that is known of each of them, and checked. */

/* ---- sizes of messages, one entry per path and number of bytes ---- */

struct sizes { struct packed *out; int32_t *table; i64 table_size; };

static i64 entry_of(const struct sizes *k, i64 path, i64 bytes)
{
    uint64_t mixed = ((uint64_t)bytes * 256 + (uint64_t)path) * 0x9e3779b97f4a7c15u;
    i64 at = (i64)(mixed >> 20) & (k->table_size - 1);
    const struct size *size = k->out->size;
    while (k->table[at] >= 0 && (size[k->table[at]].bytes != bytes || size[k->table[at]].path != path))
        at = (at + 1) & (k->table_size - 1);
    return at;
}

/* The number of a size; sizes beyond the room are counted, at least one of them. */
static int32_t size_of(struct sizes *k, i64 path, i64 bytes)
{
    i64 at = entry_of(k, path, bytes);
    if (k->table[at] >= 0)
        return k->table[at];
    if (k->out->sizes >= k->out->room) {
        k->out->sizes = k->out->room + 1;
        return 0;
    }
    k->out->size[k->out->sizes] = (struct size){bytes, path};
    return k->table[at] = (int32_t)k->out->sizes++;
}

static i64 path_between(const struct columns *in, i64 one, i64 other)
{
    i64 a = in->node_of[one], b = in->node_of[other];
    return in->path_of ? in->path_of[a * in->nodes + b] : a == b ? in->same : in->other;
}

/* ---- steps ---- */

static int is_send(i64 op) { return (op >= SEND && op <= START_SSEND) || op == SENDRECV; }
static int is_receive(i64 op) { return op >= RECV && op <= SENDRECV; }
static int is_wait(i64 op) { return op == WAIT || op == WAITANY || op == WAITSOME; }

/* What is wrong with step i of the world rank `rank`, whose steps are first to last; SOUND: nothing.
 * `owner`: the number of the rank of each step. */
static int flaw(const struct columns *in, i64 i, i64 first, const int32_t *owner)
{
    i64 op = in->op[i], to = in->to[i], source = in->source[i];
    if (op < SEND || op > REST)
        return NO_OPERATION;
    if (in->peer[i] >= in->n || (in->peer2 && in->peer2[i] >= in->n))
        return NO_RANK;
    if (in->bytes[i] < 0 || (in->bytes2 && in->bytes2[i] < 0))
        return NO_BYTES;
    if (to >= in->steps || (to >= 0 && (!is_send(op) || in->source[to] != i
                                        || in->peer[i] != in->rank[owner[to]])))
        return NOT_RECEIVED;
    if (source >= in->steps || (source >= 0 && (!is_receive(op) || in->to[source] != i)))
        return NOT_SENT;
    for (i64 d = in->done_start[i]; d < in->done_start[i + 1]; d++) {
        i64 q = in->done[d], asked = q < first || q >= i ? REST : in->op[q];
        if (!((asked >= ISEND && asked <= START_SSEND) || asked == IRECV || asked == START_RECV
              || asked == ICOLLECTIVE))
            return NO_REQUEST;
    }
    return SOUND;
}

/* Step i of rank number `owner`; its list of requests is put at `done`; returns its length. */
static i64 pack(const struct columns *in, struct packed *out, struct sizes *k, i64 i,
                int32_t owner, i64 done)
{
    struct step *step = &out->step[i];
    i64 op = in->op[i], peer = in->peer[i], first = in->done_start[i], rank = in->rank[owner];
    i64 from = op == SENDRECV && in->peer2 ? in->peer2[i] : peer;
    i64 bytes = op == SENDRECV && in->bytes2 ? in->bytes2[i] : in->bytes[i];
    int collective = op == COLLECTIVE || op == ICOLLECTIVE;
    *step = (struct step){
        .to = in->to[i], .source = in->source[i], .send = -1, .receive = -1,
        .cell = in->cell ? in->cell[i] : 0, .node = -1, .owner = (uint32_t)owner, .op = (uint32_t)op};
    if ((is_send(op) || collective) && peer >= 0) {
        step->send = size_of(k, path_between(in, rank, peer), in->bytes[i]);
        step->node = (int32_t)in->node_of[peer];
    }
    if (is_receive(op) && step->source < 0 && from >= 0)
        step->receive = size_of(k, path_between(in, from, rank), bytes);
    if (op == WAITSOME)
        step->node = in->number[i];
    if (!is_wait(op))
        return 0;
    step->done = (int32_t)done;
    step->listed = (int32_t)(in->done_start[i + 1] - first);
    memcpy(out->done + done, in->done + first, (size_t)step->listed * sizeof *out->done);
    return step->listed;
}

int p3s_pack(const struct columns *in, struct packed *out)
{
    struct sizes sizes = {.out = out, .table_size = 64};
    int32_t *owner = malloc((size_t)(in->steps + 1) * sizeof *owner);
    while (sizes.table_size < 4 * out->room)
        sizes.table_size *= 2;
    sizes.table = malloc((size_t)sizes.table_size * sizeof *sizes.table);
    int result = owner && sizes.table ? DONE : NO_MEMORY;
    out->sizes = out->flaw = 0;
    out->longest = 1;
    if (result == DONE) {
        memset(sizes.table, 0xff, (size_t)sizes.table_size * sizeof *sizes.table);
        for (i64 r = 0; r < in->ranks; r++)
            for (i64 i = in->start[r]; i < in->start[r + 1]; i++)
                owner[i] = (int32_t)r;
    }
    for (i64 i = 0; i < in->steps && result == DONE; i++)
        if ((out->flaw = flaw(in, i, in->start[owner[i]], owner))) {
            out->where = i;
            result = FLAWED;
        }
    for (i64 i = 0, done = 0; i < in->steps && result == DONE; i++) {
        i64 listed = pack(in, out, &sizes, i, owner[i], done);
        out->step[i].next = i + 1 < in->start[owner[i] + 1] ? (int32_t)i + 1 : -1;
        done += listed;
        out->longest = listed > out->longest ? listed : out->longest;
    }
    for (i64 call = 0; call < in->calls && result == DONE; call++)
        out->step[in->call_step[call]].receive = (int32_t)call;
    for (i64 r = 0; r < in->ranks && result == DONE; r++)
        out->first[r] = in->start[r] < in->start[r + 1] ? (int32_t)in->start[r] : -1;
    free(owner);
    free(sizes.table);
    return result == DONE && out->sizes > out->room ? NO_ROOM : result;
}

static int32_t moved(const int32_t *place, int32_t step) { return step < 0 ? -1 : place[step]; }

enum { AHEAD = 16 };

/* Packs again what was packed in the order of the ranks: the steps lie in another order. */
void p3s_reorder(i64 steps, i64 ranks, const struct packed *old, const int32_t *order,
                 struct packed *out)
{
    for (i64 at = 0; at < steps; at++)
        out->place[order[at]] = (int32_t)at;
    for (i64 at = 0, done = 0; at < steps; at++) {
        struct step step = old->step[order[at]];
        if (at + 2 * AHEAD < steps) { /* what comes soon is fetched: it lies everywhere */
            const struct step *soon = &old->step[order[at + AHEAD]];
            __builtin_prefetch(&old->step[order[at + 2 * AHEAD]]);
            __builtin_prefetch(&out->place[soon->to < 0 ? 0 : soon->to]);
            __builtin_prefetch(&out->place[soon->source < 0 ? 0 : soon->source]);
            __builtin_prefetch(&out->place[soon->next < 0 ? 0 : soon->next]);
        }
        if (is_wait(step.op)) {
            for (i64 d = 0; d < step.listed; d++)
                out->done[done + d] = out->place[old->done[step.done + d]];
            step.done = (int32_t)done;
            done += step.listed;
        }
        step.to = moved(out->place, step.to);
        step.source = moved(out->place, step.source);
        step.next = moved(out->place, step.next);
        out->step[at] = step;
    }
    for (i64 r = 0; r < ranks; r++)
        out->first[r] = moved(out->place, old->first[r]);
}

/* ---- whether all ranks come to their ends, whatever the costs ---- */

/* Sends return at once. Where this says so it is so; where it does not, a simulation tells. */
struct ending {
    const struct columns *in;
    const i64 *call_instance, *expected, *member_start, *member;
    int32_t *owner, *pending;
    uint8_t *state; /* BEGUN; WANT_HERE: its rank waits for it */
    i64 *at, *runnable, *arrived;
    i64 runnables;
};

static int known_to_end(i64 op)
{
    return op != SSEND && op != ISSEND && op != START_SSEND && op != WAITANY && op != WAITSOME;
}

/* The instance of the collective call that step i is. */
static i64 instance_of(const struct ending *e, i64 i)
{
    i64 low = 0, high = e->in->calls;
    while (high - low > 1) {
        i64 middle = low + (high - low) / 2;
        if (e->in->call_step[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return e->call_instance[low];
}

static void let_go_on(struct ending *e, i64 i)
{
    if (e->state[i] & WANT_HERE) {
        e->state[i] &= (uint8_t)~WANT_HERE;
        if (--e->pending[e->owner[i]] == 0)
            e->runnable[e->runnables++] = e->owner[i];
    }
}

static void begins(struct ending *e, i64 i)
{
    i64 op = e->in->op[i];
    e->state[i] |= BEGUN;
    if (is_send(op) && e->in->to[i] >= 0)
        let_go_on(e, e->in->to[i]);
    if (op == COLLECTIVE || op == ICOLLECTIVE) {
        i64 g = instance_of(e, i);
        if (++e->arrived[g] >= e->expected[g])
            for (i64 m = e->member_start[g]; m < e->member_start[g + 1]; m++)
                let_go_on(e, e->in->call_step[e->member[m]]);
    }
}

/* Step i of rank r, or a request, waits for what has not begun. */
static void wait_for(struct ending *e, i64 r, i64 i)
{
    i64 op = e->in->op[i], source = e->in->source[i], g;
    int here = 1;
    if (is_receive(op))
        here = source < 0 || e->state[source] & BEGUN;
    else if (op == COLLECTIVE || op == ICOLLECTIVE) {
        g = instance_of(e, i);
        here = e->arrived[g] >= e->expected[g];
    }
    if (!here && !(e->state[i] & WANT_HERE)) {
        e->state[i] |= WANT_HERE;
        e->pending[r]++;
    }
}

static void go_as_far(struct ending *e, i64 r)
{
    const struct columns *in = e->in;
    for (i64 i = e->at[r]; i < in->start[r + 1]; i = ++e->at[r]) {
        i64 op = in->op[i];
        if (!(e->state[i] & BEGUN))
            begins(e, i);
        if (op == RECV || op == SENDRECV || op == COLLECTIVE)
            wait_for(e, r, i);
        for (i64 d = in->done_start[i]; op == WAIT && d < in->done_start[i + 1]; d++)
            wait_for(e, r, in->done[d]);
        if (e->pending[r])
            return;
    }
}

/* Whether steps fit together and surely come to their ends. */
int p3s_ends(const struct columns *in, i64 instances, const i64 *call_instance, const i64 *expected,
             const i64 *member_start, const i64 *member)
{
    struct ending e = {.in = in, .call_instance = call_instance, .expected = expected,
                       .member_start = member_start, .member = member};
    int ends;
    e.owner = malloc((size_t)(in->steps + 1) * sizeof *e.owner);
    e.state = calloc((size_t)(in->steps + 1), 1);
    e.pending = calloc((size_t)(in->ranks + 1), sizeof *e.pending);
    e.at = malloc((size_t)(in->ranks + 1) * sizeof *e.at);
    e.runnable = malloc((size_t)(in->ranks + 1) * sizeof *e.runnable);
    e.arrived = calloc((size_t)(instances + 1), sizeof *e.arrived);
    ends = e.owner && e.state && e.pending && e.at && e.runnable && e.arrived;
    for (i64 r = in->ranks - 1; ends && r >= 0; r--) {
        e.at[r] = in->start[r];
        e.runnable[e.runnables++] = r;
        for (i64 i = in->start[r]; i < in->start[r + 1]; i++)
            e.owner[i] = (int32_t)r;
    }
    for (i64 i = 0; ends && i < in->steps; i++)
        ends = known_to_end(in->op[i]) && flaw(in, i, in->start[e.owner[i]], e.owner) == SOUND;
    while (ends && e.runnables)
        go_as_far(&e, e.runnable[--e.runnables]);
    for (i64 r = 0; ends && r < in->ranks; r++)
        ends = e.at[r] >= in->start[r + 1];
    void *all[] = {e.owner, e.state, e.pending, e.at, e.runnable, e.arrived};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return ends;
}
