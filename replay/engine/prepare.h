/* Making events ready: buffers, checked and translated arguments. */

static char *buffer_of(size_t *room, enum pages pages)
{
    enum { HUGE_PAGE = 2 << 20, PAGE = 4096 };
    char *found;
    if (pages == PAGES_HUGE) {
        *room = (*room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        found = aligned_alloc(HUGE_PAGE, *room);
        if (found)
            madvise(found, *room, MADV_HUGEPAGE);
    } else {
        found = malloc(*room);
        uintptr_t first = ((uintptr_t)found + PAGE - 1) / PAGE * PAGE;
        uintptr_t end = ((uintptr_t)found + *room) / PAGE * PAGE;
        if (found && end > first)
            madvise((void *)first, end - first, MADV_NOHUGEPAGE);
    }
    if (found)
        memset(found, 1, *room); /* touched once: no page fault is timed */
    return found;
}

static void at_least(size_t *room, int64_t wanted)
{
    if (wanted > 0 && (size_t)wanted > *room)
        *room = (size_t)wanted;
}

static int receives(int64_t code)
{
    return code == RECV || code == IRECV || code == SECOND || code == LINK_RECV;
}

static int collects(int64_t code)
{
    return code == COLLECTIVE || code == COLLECTIVE_START;
}

static int leaves_request(int64_t code)
{
    return code == ISEND || code == ISSEND || code == IRECV
        || code == COLLECTIVE_START;
}

static int waits(int64_t code)
{
    return code == WAIT || code == WAITANY || code == WAITSOME;
}

static int floods(int64_t code)
{
    return code == LINK_SEND || code == LINK_RECV;
}

/* Whether an event has a peer, a tag and bytes of its own. */
static int moves(int64_t code)
{
    return !waits(code) && code != NOTHING && code != END;
}

static int within(int64_t value, int64_t low, int64_t high)
{
    return low <= value && value <= high;
}

/* Whether an event can be executed: its numbers fit those of a call, and what they point at is
 * there. n_lists, n_comms: lengths of what it may point into. */
static int is_sound(const struct loop *s, const struct event *e, int64_t n_lists, int64_t n_comms)
{
    int good = within(e->code, SEND, LINK_RECV) && e->work_ns <= LONGEST_NS
        && e->at_ns <= LONGEST_NS;
    if (moves(e->code))
        good &= within(e->peer, NOBODY, s->size - 1) && within(e->tag, ANY, INT32_MAX)
            && within(e->bytes, 0, INT32_MAX) && within(e->offset, 0, MOST_BYTES)
            && within(e->arg, INT32_MIN, INT32_MAX);
    if (waits(e->code))
        good &= within(e->first, 0, n_lists) && within(e->number, 0, n_lists - e->first)
            && within(e->arg, INT32_MIN, INT32_MAX);
    if (floods(e->code))
        good &= within(e->number, 0, INT32_MAX);
    if (collects(e->code))
        good &= within(e->arg, BARRIER, EXSCAN) && within(e->comm, 0, n_comms - 1);
    return good;
}

/* How much room an event needs in the two buffers. */
static int need(struct loop *s, const struct event *e, const int *comms)
{
    int64_t out = e->bytes, in = e->bytes, window = e->number < WINDOW ? e->number : WINDOW;
    if (!moves(e->code) || e->code == ASK)
        return MPI_SUCCESS;
    if (collects(e->code)) {
        MPI_Comm comm = MPI_Comm_f2c(comms[e->comm]);
        if (comm == MPI_COMM_NULL)
            return NO_MEMBER;
        int members;
        MPI_Comm_size(comm, &members);
        rooms(e->arg, e->bytes, members, &out, &in);
        at_least(&s->in_room, e->offset + in);
        at_least(&s->out_room, out); /* of a collective the offset is that of the result */
        return MPI_SUCCESS;
    }
    if (floods(e->code))
        out = in = e->bytes * window;
    if (receives(e->code))
        at_least(&s->in_room, e->offset + in);
    else
        at_least(&s->out_room, e->offset + out);
    return MPI_SUCCESS;
}

/* The slots that an event waits for: those there are, each once. seen has a place for every slot
 * and holds the number of the last event that waits for it, from 1. */
static int list_of(const struct loop *s, struct op *o, int *seen)
{
    int me = (int)(o - s->ops) + 1;
    for (int64_t i = 0; i < o->number; i++) {
        int64_t slot = o->list[i];
        if (!within(slot, 0, s->n_slots - 1) || seen[slot] == me)
            return BAD_EVENT;
        seen[slot] = me;
        if (slot != o->list[0] + i)
            o->in_order = 0;
    }
    return MPI_SUCCESS;
}

static int ready(struct loop *s, struct op *o, const struct event *e, const int64_t *lists,
                 const int *comms, int *seen)
{
    o->code = (int32_t)e->code;
    o->peer = e->peer == NOBODY ? MPI_PROC_NULL : (int32_t)e->peer;
    o->tag = (int32_t)e->tag;
    if (receives(e->code)) {
        o->peer = e->peer == ANY ? MPI_ANY_SOURCE : o->peer;
        o->tag = e->tag == ANY ? MPI_ANY_TAG : o->tag;
    }
    o->bytes = (int32_t)e->bytes;
    o->arg = (int32_t)e->arg;
    o->slot = (int32_t)e->slot;
    o->number = (int32_t)e->number;
    o->work_ns = e->work_ns;
    o->at_ns = e->at_ns;
    o->in_order = 1;
    if (moves(e->code))
        o->buffer = (receives(e->code) ? s->in : s->out) + e->offset;
    if (waits(e->code)) {
        o->list = lists + e->first;
        if (list_of(s, o, seen) != MPI_SUCCESS)
            return BAD_EVENT;
    }
    if (e->code == SENDRECV && (o - s->ops + 1 >= s->count || e[1].code != SECOND))
        return BAD_EVENT;
    if (collects(e->code)) {
        int members, root = (int)e->peer;
        o->comm = MPI_Comm_f2c(comms[e->comm]);
        MPI_Comm_size(o->comm, &members);
        o->bytes = (int32_t)part_of(e->arg, e->bytes, members);
        o->buffer = s->out;
        o->second = s->in + e->offset;
        if (root >= 0) { /* as a rank of this communicator */
            MPI_Group all, some;
            MPI_Comm_group(s->messages, &all);
            MPI_Comm_group(o->comm, &some);
            MPI_Group_translate_ranks(all, 1, &root, some, &o->peer);
            MPI_Group_free(&all);
            MPI_Group_free(&some);
        }
    }
    return MPI_SUCCESS;
}
