/* Links whose rate the messages on them share: a fluid of flows, max-min fair.
 *
 * Each link has a level: what a flow on it gets at most, times its share, so that the link is full;
 * flows that get less elsewhere leave the rest to the others. A flow's rate is its share of the least
 * level on its way. A link works its level out again when what its flows take has changed by more
 * than SLACK of its rate, and flows that get another rate by that change their other links (Charny
 * et al., "Congestion control with explicit rate indication", 1995, where the links do so too). So a
 * flow that begins or ends costs what it changes, not all that hangs together with it.
 */
#define SLACK 0.003
enum { ROUNDS = 64 }; /* for each link that changed, at most */

/* A flow on a link of its way: the place among the flows of the link. */
struct wire { int32_t link, place; double weight; };
struct flow { i64 step, number; double rate, left, at, end, share; int32_t wires, heap; };
struct shared { int32_t *wires; int32_t n, room, queued; double rate, level, drift; };
struct part { double level, weight; };

struct fluid {
    struct flow *flows;
    struct wire *wires;      /* `most` for each flow */
    struct shared *links;
    struct part *parts;
    int32_t *free, *heap;    /* flows not in use; flows by their end */
    int32_t *queue, *fresh;  /* links that changed, a ring; flows without a rate */
    i64 most, room, frees, heaped, links_number, first, queued, part_room, freshes;
    double now;
};

static void fluid_free(struct fluid *f, i64 links)
{
    for (i64 l = 0; f->links && l < links; l++)
        free(f->links[l].wires);
    void *all[] = {f->flows, f->wires, f->links, f->parts, f->free, f->heap, f->queue, f->fresh};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static int grow(void **what, i64 number, size_t size)
{
    void *more = realloc(*what, (size_t)(number > 0 ? number : 1) * size);
    if (more)
        *what = more;
    return more != NULL;
}

static int more_flows(struct fluid *f)
{
    i64 room = f->room ? 2 * f->room : 256;
    if (!grow((void **)&f->flows, room, sizeof *f->flows)
        || !grow((void **)&f->wires, room * f->most, sizeof *f->wires)
        || !grow((void **)&f->free, room, sizeof *f->free)
        || !grow((void **)&f->heap, room, sizeof *f->heap)
        || !grow((void **)&f->fresh, room, sizeof *f->fresh))
        return 0;
    for (i64 k = room - 1; k >= f->room; k--)
        f->free[f->frees++] = (int32_t)k;
    f->room = room;
    return 1;
}

/* ---- heap of flows by their end, then step ---- */

static int ends_before(const struct flow *a, const struct flow *b)
{
    return a->end < b->end || (a->end == b->end && a->number < b->number);
}

static void put(struct fluid *f, i64 at, int32_t flow)
{
    f->heap[at] = flow;
    f->flows[flow].heap = (int32_t)at;
}

static void sift(struct fluid *f, int32_t flow)
{
    i64 at = f->flows[flow].heap;
    for (; at && ends_before(&f->flows[flow], &f->flows[f->heap[(at - 1) / 2]]); at = (at - 1) / 2)
        put(f, at, f->heap[(at - 1) / 2]);
    for (;;) {
        i64 least = 2 * at + 1;
        if (least >= f->heaped)
            break;
        if (least + 1 < f->heaped
            && ends_before(&f->flows[f->heap[least + 1]], &f->flows[f->heap[least]]))
            least++;
        if (!ends_before(&f->flows[f->heap[least]], &f->flows[flow]))
            break;
        put(f, at, f->heap[least]);
        at = least;
    }
    put(f, at, flow);
}

static void take_off(struct fluid *f, int32_t flow)
{
    i64 at = f->flows[flow].heap;
    int32_t last = f->heap[--f->heaped];
    if (last != flow) {
        put(f, at, last);
        sift(f, last);
    }
}

/* ---- flows on links ---- */

/* What flows take of a link has changed by so much. */
static void changed(struct fluid *f, i64 link, double by)
{
    struct shared *l = &f->links[link];
    l->drift += by;
    if (l->queued || l->drift <= SLACK * l->rate)
        return;
    l->queued = 1;
    f->queue[(f->first + f->queued++) % f->links_number] = (int32_t)link;
}

static int join_link(struct fluid *f, int32_t flow, i64 link, double weight)
{
    struct shared *l = &f->links[link];
    int32_t wire = (int32_t)(flow * f->most + f->flows[flow].wires++);
    if (l->n == l->room) {
        if (!grow((void **)&l->wires, l->room ? 2 * l->room : 8, sizeof *l->wires))
            return 0;
        l->room = l->room ? 2 * l->room : 8;
    }
    f->wires[wire] = (struct wire){(int32_t)link, l->n, weight};
    l->wires[l->n++] = wire;
    double most = l->level * f->flows[flow].share;
    changed(f, link, weight * (most < l->rate ? most : l->rate));
    return 1;
}

static void leave_links(struct fluid *f, int32_t flow)
{
    for (i64 k = 0; k < f->flows[flow].wires; k++) {
        struct wire *w = &f->wires[flow * f->most + k];
        struct shared *l = &f->links[w->link];
        int32_t last = l->wires[--l->n];
        l->wires[w->place] = last;
        f->wires[last].place = w->place;
        changed(f, w->link, w->weight * f->flows[flow].rate);
    }
}

/* The links of a message in the order of its way: of its node, between switches, of the other. */
static int join_way(struct sim *s, int32_t flow, i64 from, i64 to, double weight)
{
    const struct input *in = s->in;
    struct way w = way(in, from, to);
    int done = 1;
    if (isfinite(in->rate))
        done = join_link(s->fluid, flow, in->trunks + from, weight)
            && join_link(s->fluid, flow, in->trunks + in->nodes + to, weight);
    for (i64 k = 0; k < w.number && done; k++)
        done = join_link(s->fluid, flow, w.link[k], weight);
    return done;
}

/* What a message alone on its way gets. */
static double widest(const struct sim *s, i64 i)
{
    const struct input *in = s->in;
    struct way w = way(in, from_node(s, i), to_node(s, i));
    double rate = in->rate;
    for (i64 k = 0; k < w.number; k++)
        rate = in->trunk_rate[w.link[k]] < rate ? in->trunk_rate[w.link[k]] : rate;
    return rate;
}

/* Bytes that a message keeps its links busy with: no more than go into its time. */
static double bulk(const struct sim *s, i64 i)
{
    double most = taken(s, i) * widest(s, i), load = sent(s, i)->load;
    return load < most ? load : most;
}

/* When the flow of a message that begins at `ns` starts: alone it ends when the message arrives. */
static double flow_start(const struct sim *s, i64 i, double ns)
{
    return ns + taken(s, i) - bulk(s, i) / widest(s, i);
}

/* A flow's part beside that of others on a link: TCP's is less by as much as its way is longer. */
static double share_of(const struct sim *s, i64 from, i64 to)
{
    return 1.0 / (double)(2 + way(s->in, from, to).number);
}

static void flow_begins(struct sim *s, i64 i, double ns)
{
    struct fluid *f = s->fluid;
    double load = bulk(s, i);
    if (!(load > 0)) {
        arrive(s, i, ns);
        return;
    }
    if (!f->frees && !more_flows(f)) {
        s->failed = 1;
        return;
    }
    int32_t flow = f->free[--f->frees];
    i64 from = from_node(s, i), to = to_node(s, i);
    f->flows[flow] = (struct flow){i, number_of(s, i), 0, load, ns, INFINITY, share_of(s, from, to), 0, 0};
    if (!join_way(s, flow, from, to, 1)
        || (s->in->back > 0 && !join_way(s, flow, to, from, s->in->back)))
        s->failed = 1;
    put(f, f->heaped++, flow);
    sift(f, flow);
    f->fresh[f->freshes++] = flow;
    f->now = ns;
}

static void flow_ends(struct sim *s)
{
    struct fluid *f = s->fluid;
    int32_t flow = f->heap[0];
    f->now = f->flows[flow].end;
    take_off(f, flow);
    leave_links(f, flow);
    f->free[f->frees++] = flow;
    arrive(s, f->flows[flow].step, f->now);
}

/* ---- rates ---- */

/* The least level on the way of a flow; but for one link's (-1: of all). */
static double least_level(const struct fluid *f, i64 flow, i64 but)
{
    double least = INFINITY;
    for (i64 k = 0; k < f->flows[flow].wires; k++) {
        i64 link = f->wires[flow * f->most + k].link;
        if (link != but && f->links[link].level < least)
            least = f->links[link].level;
    }
    return least;
}

/* The level at which a link is full; INFINITY where its flows do not fill it. */
static double level_of(struct fluid *f, i64 link)
{
    const struct shared *l = &f->links[link];
    double rest = l->rate, weight = 0;
    i64 open = l->n;
    if (open > f->part_room) {
        if (!grow((void **)&f->parts, 2 * open, sizeof *f->parts))
            return l->rate;
        f->part_room = 2 * open;
    }
    for (i64 n = 0; n < l->n; n++) {
        f->parts[n].level = least_level(f, l->wires[n] / f->most, link);
        f->parts[n].weight
            = f->wires[l->wires[n]].weight * f->flows[l->wires[n] / f->most].share;
        weight += f->parts[n].weight;
    }
    while (open) { /* what is less than the level elsewhere leaves some to the others */
        double level = rest / weight;
        i64 kept = 0;
        for (i64 n = 0; n < open; n++) {
            if (f->parts[n].level > level) {
                f->parts[kept++] = f->parts[n];
                continue;
            }
            rest -= f->parts[n].weight * f->parts[n].level;
            weight -= f->parts[n].weight;
        }
        if (kept == open)
            return level;
        open = kept;
    }
    return INFINITY;
}

/* Gives a flow its rate, if that is another one. */
static void give(struct fluid *f, i64 flow)
{
    struct flow *one = &f->flows[flow];
    double rate = one->share * least_level(f, flow, -1), by = fabs(rate - one->rate);
    if (by <= SLACK * one->rate)
        return;
    for (i64 k = 0; k < one->wires; k++) {
        const struct wire *w = &f->wires[flow * f->most + k];
        if (one->rate > 0) /* else it was counted when it joined */
            changed(f, w->link, w->weight * by);
    }
    one->left -= one->rate * (f->now - one->at);
    one->left = one->left > 0 ? one->left : 0;
    one->at = f->now;
    one->rate = rate;
    one->end = f->now + one->left / rate;
    sift(f, (int32_t)flow);
}

static void settle(struct fluid *f)
{
    i64 rounds = ROUNDS * (f->queued + 1);
    while (f->queued && rounds--) {
        i64 link = f->queue[f->first];
        struct shared *l = &f->links[link];
        f->first = (f->first + 1) % f->links_number;
        f->queued--;
        l->queued = 0;
        l->drift = 0;
        double level = level_of(f, link), before = l->level;
        l->level = level;
        if (level != before)
            for (i64 n = 0; n < l->n; n++)
                if (f->flows[l->wires[n] / f->most].rate > 0)
                    give(f, l->wires[n] / f->most);
    }
    for (i64 k = 0; k < f->freshes; k++)
        give(f, f->fresh[k]);
    f->freshes = 0;
}

static int fluid_prepare(struct sim *s)
{
    const struct input *in = s->in;
    struct fluid *f = s->fluid;
    i64 links = in->trunks + 2 * in->nodes, longest = 0;
    for (i64 k = 0; in->place_of && k < in->places * in->places; k++) {
        i64 number = in->route_start[k + 1] - in->route_start[k];
        longest = number > longest ? number : longest;
    }
    f->most = 2 * (longest + 2);
    f->links_number = links;
    f->links = calloc((size_t)links, sizeof *f->links);
    f->queue = calloc((size_t)links, sizeof *f->queue);
    if (!f->links || !f->queue || !more_flows(f))
        return 0;
    for (i64 l = 0; l < links; l++) {
        f->links[l].rate = l < in->trunks ? in->trunk_rate[l] : in->rate;
        f->links[l].level = INFINITY;
    }
    return 1;
}
