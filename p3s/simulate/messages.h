/* Messages on their way, and the ranks that wait for them. */
/* ---- ranks that wait ---- */

static void wake(struct sim *s, i64 r)
{
    if (!s->queued[r]) {
        s->queued[r] = 1;
        s->runnable[s->runnables++] = r;
    }
}

/* One of the things that a rank waits for is known; WAITANY and WAITSOME look again each time. */
static void release(struct sim *s, i64 r)
{
    i64 op = s->step[s->out->at[r]].op;
    if (op == WAITANY || op == WAITSOME || --s->pending[r] == 0)
        wake(s, r);
}

static void known(struct sim *s, i64 step, unsigned char want)
{
    if (s->state[step] & want) {
        s->state[step] &= (unsigned char)~want;
        release(s, s->step[step].owner);
    }
}

/* ---- messages ---- */

static void arrive(struct sim *s, i64 i, double ns)
{
    s->live[i].arrival = ns;
    s->state[i] |= ARRIVED;
    known(s, i, WANT_SENT);
    if (s->step[i].to >= 0)
        known(s, s->step[i].to, WANT_HERE);
}

static double taken(const struct sim *s, i64 i)
{
    double ns = sent(s, i)->transfer + (s->in->extra ? s->in->extra[i] : 0);
    return ns > 0 ? ns : 0;
}

static i64 from_node(const struct sim *s, i64 i)
{
    return s->in->node_of[s->in->rank[s->step[i].owner]];
}

static i64 to_node(const struct sim *s, i64 i) { return s->step[i].node; }

/* The links between switches on the way from a node to another. */
struct way { const i64 *link; i64 number; };

static struct way way(const struct input *in, i64 from, i64 to)
{
    struct way w = {NULL, 0};
    if (in->place_of) {
        const i64 *start = in->route_start + in->place_of[from] * in->places + in->place_of[to];
        w.link = in->route + start[0];
        w.number = start[1] - start[0];
    }
    return w;
}

/* Whether the message of step i passes links that have a queue. */
static int queues(const struct sim *s, i64 i)
{
    return sent(s, i)->linked
        && (isfinite(s->in->rate) || way(s->in, from_node(s, i), to_node(s, i)).number);
}

static double flow_start(const struct sim *s, i64 i, double ns);

static void transfer(struct sim *s, i64 i, double ns)
{
    s->live[i].began = ns;
    if (queues(s, i))
        push(s, event(s, s->fluid ? flow_start(s, i, ns) : ns, EGRESS, i));
    else
        arrive(s, i, ns + taken(s, i));
}

/* Takes bytes through a token bucket that has passed `*filled`; returns when the last has passed.
 * `*filled`: when all before would have passed at the rate alone. */
static double pass(double *filled, double ns, double bytes, double rate, double burst)
{
    double end = (*filled > ns ? *filled : ns) + bytes / rate, early = end - burst / rate;
    *filled = end;
    return early > ns ? early : ns;
}

/* How long bytes take through a link with a full bucket and nothing before them. */
static double alone(double bytes, double rate, double burst)
{
    return bytes > burst ? (bytes - burst) / rate : 0;
}

static void into_node(struct sim *s, i64 i, double ns)
{
    const struct input *in = s->in;
    const struct cost *c = sent(s, i);
    double bytes = c->bytes, gone = s->live[i].arrival; /* when it has left all before */
    double here = pass(&s->ingress[to_node(s, i)], ns, c->load, in->rate, in->burst);
    double least = alone(c->load, in->rate, in->burst);
    struct way w = way(in, from_node(s, i), to_node(s, i));
    for (i64 k = 0; k < w.number; k++) {
        double longer = alone(bytes, in->trunk_rate[w.link[k]], in->trunk_burst[w.link[k]]);
        least = longer > least ? longer : least;
    }
    double delay = (here > gone ? here : gone) - (s->live[i].began + least);
    arrive(s, i, s->live[i].began + taken(s, i) + (delay > 0 ? delay : 0));
}

static void over_trunk(struct sim *s, i64 i, i64 hop, double ns);

/* The first byte reaches the next link, the hop-th of those between switches or the last one. */
static void go_to_link(struct sim *s, i64 i, i64 hop, double ns)
{
    int trunk = s->in->place_of && hop < way(s->in, from_node(s, i), to_node(s, i)).number;
    struct event e = event_at(s, ns, trunk ? TRUNK : INGRESS, trunk ? hop : 0, i);
    if (s->events && before(s->heap[0], e))
        push(s, e);
    else if (trunk)
        over_trunk(s, i, hop, ns);
    else
        into_node(s, i, ns);
}

static void over_trunk(struct sim *s, i64 i, i64 hop, double ns)
{
    const struct input *in = s->in;
    i64 link = way(in, from_node(s, i), to_node(s, i)).link[hop];
    double bytes = sent(s, i)->bytes, rate = in->trunk_rate[link];
    double gone = pass(&s->trunk[link], ns, bytes, rate, in->trunk_burst[link]);
    double first = gone - bytes / rate;
    if (gone > s->live[i].arrival)
        s->live[i].arrival = gone;
    go_to_link(s, i, hop + 1, first > ns ? first : ns);
}

static void out_of_node(struct sim *s, i64 i, double ns)
{
    const struct input *in = s->in;
    double load = sent(s, i)->load;
    double gone = pass(&s->egress[from_node(s, i)], ns, load, in->rate, in->burst);
    double first = gone - load / in->rate; /* its first byte reaches the next link */
    s->live[i].arrival = gone;
    s->out->queued += first > ns;
    go_to_link(s, i, 0, first > ns ? first : ns);
}

/* ---- the handshake of a rendezvous message: small messages that wait at links like others ---- */

static int shakes(const struct sim *s, i64 i) { return s->in->handshake && queues(s, i); }

/* Lets something small pass the links from the hop-th on; false: it waits at one, till an event. */
static int passes(struct sim *s, i64 i, int kind, i64 hop, double *ns)
{
    const struct input *in = s->in;
    i64 here = kind == ANSWER ? to_node(s, i) : from_node(s, i);
    i64 there = kind == ANSWER ? from_node(s, i) : to_node(s, i);
    struct way w = way(in, here, there);
    for (; hop < w.number + 2; hop++) {
        double free;
        if (hop == 0 || hop == w.number + 1)
            free = (hop ? s->ingress[there] : s->egress[here]) - in->burst / in->rate;
        else
            free = s->trunk[w.link[hop - 1]]
                - in->trunk_burst[w.link[hop - 1]] / in->trunk_rate[w.link[hop - 1]];
        if (free > *ns) {
            push(s, event_at(s, free, kind, hop + 1, i));
            return 0;
        }
    }
    return 1;
}

static void answer(struct sim *s, i64 i, i64 hop, double ns)
{
    if (!shakes(s, i) || passes(s, i, ANSWER, hop, &ns))
        transfer(s, i, ns);
}

/* Both sides of a rendezvous message have begun, and the receiver knows of it. */
static void meet(struct sim *s, i64 i)
{
    double mine = s->live[i].begin, other = s->live[s->step[i].to].begin;
    if (shakes(s, i))
        mine = s->live[i].began; /* when it was announced */
    double ns = mine > other ? mine : other;
    if (!s->in->background)
        push(s, event(s, ns, BOTH_IN_CALL, i));
    else if (shakes(s, i))
        push(s, event(s, ns, ANSWER, i));
    else
        transfer(s, i, ns);
}

static void announce(struct sim *s, i64 i, i64 hop, double ns)
{
    if (!passes(s, i, ANNOUNCE, hop, &ns) || !(s->state[i] & MEETS))
        return;
    s->live[i].began = ns;
    if (s->state[s->step[i].to] & BEGUN)
        meet(s, i);
}

/* The step of its rank after this one that is not passed over, -1: there is none. */
static i64 following(const struct sim *s, i64 i)
{
    do
        i = s->step[i].next;
    while (i >= 0 && s->in->group && s->in->group[i] == APART);
    return i;
}

/* When, from `ns` on, the rank of step `first` is inside a call, that one or a later one. */
static double in_call(const struct sim *s, i64 first, double ns)
{
    i64 at = s->out->at[s->step[first].owner];
    while (first >= 0 && first != at && s->out->end[first] < ns)
        first = following(s, first);
    return first >= 0 && s->live[first].begin > ns ? s->live[first].begin : ns;
}

/* A rendezvous message between ranks that make progress inside calls only. A sender that does not
 * block has gone on before the receiver's answer is there: it moves the data in a later call. */
static void both_in_call(struct sim *s, i64 i, double ns)
{
    i64 op = s->step[i].op, from = i;
    if (op != SEND && op != SSEND && op != SENDRECV && following(s, i) >= 0)
        from = following(s, i);
    double sender = in_call(s, from, ns), receiver = in_call(s, s->step[i].to, ns);
    double both = sender > receiver ? sender : receiver;
    if (both > ns)
        push(s, event(s, both, BOTH_IN_CALL, i)); /* the other may have left its call by then */
    else
        answer(s, i, 0, ns);
}

/* Step i begins to send; returns what its call takes for itself, if it needs not wait. */
static double send(struct sim *s, i64 i)
{
    const struct step *step = &s->step[i];
    i64 op = step->op, j = step->to;
    if (step->send < 0)
        return s->in->post;
    const struct cost *c = &s->costs[step->send];
    int meets = op == SSEND || op == ISSEND || op == START_SSEND || (op != BSEND && c->large);
    if (j < 0 || !meets) {
        transfer(s, i, s->live[i].begin);
        return c->send;
    }
    s->state[i] |= MEETS;
    if (shakes(s, i))
        push(s, event(s, s->live[i].begin, ANNOUNCE, i));
    else if (s->state[j] & BEGUN)
        meet(s, i);
    return s->in->post;
}

static void post_receive(struct sim *s, i64 j)
{
    i64 i = s->step[j].source;
    if (i >= 0 && i != j && (s->state[i] & (BEGUN | MEETS)) == (BEGUN | MEETS)
        && (!shakes(s, i) || !isnan(s->live[i].began)))
        meet(s, i);
}

/* When the sender of a rendezvous message is rid of it. */
static double rid(const struct sim *s, i64 i)
{
    const struct cost *c = sent(s, i);
    double held = s->in->linked[c->path] ? s->in->held_ns : 0;
    double gone = s->live[i].arrival - c->latency - held, own = s->live[i].began + c->send;
    return gone > own ? gone : own;
}

/* The receive half of step j: false while it is not known when the message is here. */
static int received(struct sim *s, i64 j, struct item *item)
{
    const struct step *step = &s->step[j];
    i64 i = step->source;
    if (i < 0 || s->state[j] & CUT) {
        item->cost = s->in->post;
        if (i < 0 && step->receive >= 0)
            item->cost = s->costs[step->receive].receive;
        item->here = item->began = s->live[j].begin;
    } else {
        if (!(s->state[i] & ARRIVED))
            return 0;
        item->cost = sent(s, i)->receive;
        item->here = s->live[i].arrival;
        item->began = s->live[i].began;
    }
    item->door = item->here - item->cost;
    return 1;
}
