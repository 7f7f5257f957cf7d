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
    i64 op = s->in->op[s->out->at[r]];
    if (op == WAITANY || op == WAITSOME || --s->pending[r] == 0)
        wake(s, r);
}

static void known(struct sim *s, i64 step, unsigned char want)
{
    if (s->live[step].state & want) {
        s->live[step].state &= (unsigned char)~want;
        release(s, s->live[step].owner);
    }
}

/* ---- messages ---- */

static void arrive(struct sim *s, i64 i, double ns)
{
    s->live[i].arrival = ns;
    s->live[i].state |= ARRIVED;
    known(s, i, WANT_SENT);
    if (s->in->to[i] >= 0)
        known(s, s->in->to[i], WANT_HERE);
}

static double taken(const struct sim *s, i64 i)
{
    double ns = s->kinds[s->live[i].cost].transfer + (s->in->extra ? s->in->extra[i] : 0);
    return ns > 0 ? ns : 0;
}

static void transfer(struct sim *s, i64 i, double ns)
{
    const struct cost *c = &s->kinds[s->live[i].cost];
    s->live[i].began = ns;
    if (s->in->linked[c->path] && isfinite(s->in->rate))
        push(s, event(ns, EGRESS, i));
    else
        arrive(s, i, ns + taken(s, i));
}

/* Takes bytes through a token bucket that has passed `*filled`; returns when the last has passed.
 * `*filled`: when all before would have passed at the rate alone. */
static double pass(const struct input *in, double *filled, double ns, double bytes)
{
    double end = (*filled > ns ? *filled : ns) + bytes / in->rate, early = end - in->burst / in->rate;
    *filled = end;
    return early > ns ? early : ns;
}

static void into_node(struct sim *s, i64 i, double ns)
{
    const struct input *in = s->in;
    const struct cost *c = &s->kinds[s->live[i].cost];
    double gone = s->live[i].arrival, began = s->live[i].began; /* arrival: end of the egress */
    double here = pass(in, &s->ingress[in->node_of[in->peer[i]]], ns, (double)c->bytes);
    double beyond = (double)c->bytes - in->burst, alone = began + (beyond > 0 ? beyond / in->rate : 0);
    double delay = (here > gone ? here : gone) - alone;
    arrive(s, i, began + taken(s, i) + (delay > 0 ? delay : 0));
}

static void out_of_node(struct sim *s, i64 i, double ns)
{
    const struct input *in = s->in;
    double bytes = (double)s->kinds[s->live[i].cost].bytes;
    double gone = pass(in, &s->egress[in->node_of[rank_of(s, i)]], ns, bytes);
    double first = gone - bytes / in->rate; /* its first byte reaches the other node's link */
    struct event e = event(first > ns ? first : ns, INGRESS, i);
    s->live[i].arrival = gone;
    s->out->queued += first > ns;
    if (s->events && before(s->heap[0], e))
        push(s, e);
    else
        into_node(s, i, e.ns);
}

/* ---- the handshake of a rendezvous message: small messages that wait at links like others ---- */

static int shakes(const struct sim *s, i64 i)
{
    return s->in->handshake && s->in->linked[s->kinds[s->live[i].cost].path]
        && isfinite(s->in->rate);
}

/* When something small has passed a link that it reaches at `ns`. */
static double through(const struct sim *s, const double *links, i64 node, double ns)
{
    double early = links[node] - s->in->burst / s->in->rate;
    return early > ns ? early : ns;
}

static i64 from_node(const struct sim *s, i64 i) { return s->in->node_of[rank_of(s, i)]; }
static i64 to_node(const struct sim *s, i64 i) { return s->in->node_of[s->in->peer[i]]; }

/* One way of it, `kind` on the way out and the next kind on the way in; at once if nothing waits. */
static int passes(struct sim *s, i64 i, int kind, double *ns)
{
    int answers = kind >= ANSWER_OUT;
    i64 here = answers ? to_node(s, i) : from_node(s, i);
    i64 there = answers ? from_node(s, i) : to_node(s, i);
    if (kind == ANNOUNCE_OUT || kind == ANSWER_OUT) {
        double out = through(s, s->egress, here, *ns);
        if (out > *ns) {
            push(s, event(out, kind + 1, i));
            return 0;
        }
    }
    double in = through(s, s->ingress, there, *ns);
    if (in > *ns && kind != ANNOUNCE_END && kind != ANSWER_END) {
        push(s, event(in, answers ? ANSWER_END : ANNOUNCE_END, i));
        return 0;
    }
    return 1;
}

static void answer(struct sim *s, i64 i, int kind, double ns)
{
    if (!shakes(s, i) || passes(s, i, kind, &ns))
        transfer(s, i, ns);
}

/* Both sides of a rendezvous message have begun, and the receiver knows of it. */
static void meet(struct sim *s, i64 i)
{
    double mine = s->live[i].begin, other = s->live[s->in->to[i]].begin;
    if (shakes(s, i))
        mine = s->live[i].began; /* when it was announced */
    double ns = mine > other ? mine : other;
    if (!s->in->background)
        push(s, event(ns, BOTH_IN_CALL, i));
    else if (shakes(s, i))
        push(s, event(ns, ANSWER_OUT, i));
    else
        transfer(s, i, ns);
}

static void announce(struct sim *s, i64 i, int kind, double ns)
{
    if (!passes(s, i, kind, &ns) || !(s->live[i].state & MEETS))
        return;
    s->live[i].began = ns;
    if (s->live[s->in->to[i]].state & BEGUN)
        meet(s, i);
}

/* When, from `ns` on, the rank of step `first` is inside a call, that one or a later one. */
static double in_call(const struct sim *s, i64 first, double ns)
{
    i64 r = s->live[first].owner, at = s->out->at[r], last = s->in->start[r + 1];
    while (first < at && s->out->end[first] < ns)
        first++;
    return first < last && s->live[first].begin > ns ? s->live[first].begin : ns;
}

/* A rendezvous message between ranks that make progress inside calls only. A sender that does not
 * block has gone on before the receiver's answer is there: it moves the data in a later call. */
static void both_in_call(struct sim *s, i64 i, double ns)
{
    i64 op = s->in->op[i], from = i;
    if (op != SEND && op != SSEND && op != SENDRECV && i + 1 < s->in->start[s->live[i].owner + 1])
        from = i + 1;
    double sender = in_call(s, from, ns), receiver = in_call(s, s->in->to[i], ns);
    double both = sender > receiver ? sender : receiver;
    if (both > ns)
        push(s, event(both, BOTH_IN_CALL, i)); /* the other may have left its call by then */
    else
        answer(s, i, ANSWER_OUT, ns);
}

/* Step i begins to send; returns what its call takes for itself, if it needs not wait. */
static double send(struct sim *s, i64 i)
{
    const struct input *in = s->in;
    i64 op = in->op[i], j = in->to[i];
    if (in->peer[i] < 0)
        return in->post;
    int path = path_between(in, rank_of(s, i), in->peer[i]);
    s->live[i].cost = cost_of(s, path, in->bytes[i]);
    int meets = op == SSEND || op == ISSEND || op == START_SSEND
        || (op != BSEND && (double)in->bytes[i] > in->eager[path]);
    if (j < 0 || !meets) {
        transfer(s, i, s->live[i].begin);
        return s->kinds[s->live[i].cost].send;
    }
    s->live[i].state |= MEETS;
    if (shakes(s, i))
        push(s, event(s->live[i].begin, ANNOUNCE_OUT, i));
    else if (s->live[j].state & BEGUN)
        meet(s, i);
    return in->post;
}

static void post_receive(struct sim *s, i64 j)
{
    i64 i = s->in->source[j];
    if (i >= 0 && i != j && (s->live[i].state & (BEGUN | MEETS)) == (BEGUN | MEETS)
        && (!shakes(s, i) || !isnan(s->live[i].began)))
        meet(s, i);
}

/* When the sender of a rendezvous message is rid of it. */
static double rid(const struct sim *s, i64 i)
{
    const struct cost *c = &s->kinds[s->live[i].cost];
    double held = s->in->linked[c->path] ? s->in->held_ns : 0;
    double gone = s->live[i].arrival - c->latency - held, own = s->live[i].began + c->send;
    return gone > own ? gone : own;
}

/* The receive half of step j: false while it is not known when the message is here. */
static int received(struct sim *s, i64 j, struct item *item)
{
    const struct input *in = s->in;
    i64 i = in->source[j];
    if (i < 0 || s->live[j].state & CUT) {
        i64 peer = in->op[j] == SENDRECV ? in->peer2[j] : in->peer[j];
        i64 bytes = in->op[j] == SENDRECV ? in->bytes2[j] : in->bytes[j];
        item->cost = in->post;
        if (peer >= 0 && i < 0)
            item->cost = s->kinds[cost_of(s, path_between(in, peer, rank_of(s, j)), bytes)].receive;
        item->here = item->began = s->live[j].begin;
    } else {
        if (!(s->live[i].state & ARRIVED))
            return 0;
        item->cost = s->kinds[s->live[i].cost].receive;
        item->here = s->live[i].arrival;
        item->began = s->live[i].began;
    }
    item->door = item->here - item->cost;
    return 1;
}
