/* How calls end: what they wait for, and the parts of their time. */
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

/* Puts out the times of step i of rank r, or adds them up. */
static void put_out(struct sim *s, i64 r, i64 i, double whole, double waiting, double software)
{
    const struct input *in = s->in;
    if (!in->weight) {
        s->out->waiting[i] = waiting;
        s->out->software[i] = software;
        return;
    }
    struct sum *sum = &s->out->sums[s->step[i].cell];
    double weight = in->weight[i], transfer = whole - waiting - software;
    sum->whole += weight * whole;
    sum->waiting += weight * waiting;
    sum->transfer += weight * (transfer > 0 ? transfer : 0);
    sum->software += weight * software;
    if (in->group && in->group[i])
        s->out->longs[(in->group[i] - 1) * in->ranks + r] += whole;
}

/* Ends step i of rank r: its own time `own`, then n messages in s->items. It takes `least` at least,
 * and lasts till `till`, or till `timely` had all partners begun with the call. */
static void close(struct sim *s, i64 r, i64 i, double own, i64 n, double least, double till,
                  double timely)
{
    double begin = s->live[i].begin, end, in_time, software = own;
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
    put_out(s, r, i, end - begin, end - in_time,
            software < in_time - begin ? software : in_time - begin);
    s->out->at[r] = following(s, i);
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
    switch (s->step[q].op) {
    case IRECV: case START_RECV:
        if (!received(s, q, &item))
            return 0;
        *ns = item.here;
        return 1;
    case ICOLLECTIVE:
        *ns = s->live[q].arrival;
        return s->state[q] & ARRIVED;
    default:
        if (!(s->state[q] & MEETS)) {
            *ns = s->out->end[q];
            return 1;
        }
        if (!(s->state[q] & ARRIVED))
            return 0;
        *ns = rid(s, q);
        return 1;
    }
}

static unsigned char want_of(const struct sim *s, i64 q)
{
    i64 op = s->step[q].op;
    return op == IRECV || op == START_RECV || op == ICOLLECTIVE ? WANT_HERE : WANT_SENT;
}

/* Adds a complete request to what ends step i. */
static i64 gather(struct sim *s, i64 i, i64 q, i64 n, double *till, double *timely)
{
    i64 op = s->step[q].op;
    s->state[q] |= USED;
    if (op == IRECV || op == START_RECV)
        return n + received(s, q, &s->items[n]);
    if (op == ICOLLECTIVE)
        count(s->live[q].arrival, s->live[q].began, s->live[i].begin, till, timely);
    else if (s->state[q] & MEETS)
        count(rid(s, q), s->live[q].began, s->live[i].begin, till, timely);
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
    const struct step *step = &s->step[i];
    double begin = s->live[i].begin, ns = 0, till = 0, timely = 0;
    i64 active = 0, found = 0, n = 0, wanted = step->op == WAITANY ? 1 : step->node;
    i64 first = step->done, last = step->done + step->listed;
    for (i64 d = first; d < last; d++) {
        i64 q = in->done[d];
        if (s->state[q] & USED)
            continue;
        active++;
        if (!complete(s, q, &ns)) {
            s->state[q] |= want_of(s, q);
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
            push(s, (struct event){s->choice[r], ((i64)CHOICE << KIND_BITS) | r, r});
        }
        if (wanted)
            return 0;
    }
    for (i64 d = first; d < last; d++)
        s->state[in->done[d]] &= (unsigned char)~want_of(s, in->done[d]);
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
    i64 n = 0, first = s->step[i].done, last = first + s->step[i].listed;
    for (i64 d = first; d < last; d++) {
        i64 q = in->done[d];
        if (!(s->state[q] & (USED | want_of(s, q))) && !complete(s, q, &ns)) {
            s->state[q] |= want_of(s, q);
            s->pending[r]++;
        }
    }
    if (s->pending[r])
        return 0;
    for (i64 d = first; d < last; d++)
        if (!(s->state[in->done[d]] & USED))
            n = gather(s, i, in->done[d], n, &till, &timely);
    close(s, r, i, 0, n, in->post, till, timely);
    return 1;
}

/* A blocking send or receive or both: false while it cannot end. `own`: of its send half. */
static int blocking(struct sim *s, i64 r, i64 i)
{
    i64 op = s->step[i].op, n = 0;
    double own = 0, till = 0, timely = 0;
    if (op != RECV) {
        unsigned char state = s->state[i];
        if ((state & (MEETS | ARRIVED)) == MEETS) {
            s->state[i] |= WANT_SENT;
            s->pending[r]++;
        } else if (state & MEETS)
            count(rid(s, i), s->live[i].began, s->live[i].begin, &till, &timely);
        own = state & MEETS || s->step[i].send < 0 ? s->in->post : sent(s, i)->send;
    }
    if (op == RECV || op == SENDRECV) {
        if (!received(s, i, &s->items[0])) {
            s->state[i] |= WANT_HERE;
            s->pending[r]++;
        }
        n = 1;
    }
    if (s->pending[r])
        return 0;
    close(s, r, i, own, n, 0, till, timely);
    return 1;
}
