/* Inner loop of the replay: executes a list of events and times the MPI calls in it.
 *
 * Measured ranks, black holes and noise processes run the same code on different lists. It is C
 * because Python would add 0.4 us to every call and twice the communication time where ranks
 * share cores. Python calls p3s_open (buffers), p3s_run as often as it likes and p3s_close; the layout of struct event is that of replay/plan/program.py.
 */
#include "inner.h"

#include "collectives.h"
#include "emulate.h"
#include "prepare.h"
#include "execute.h"

enum { SHORTEST_LEAD_NS = 1000000, LONGEST_LEAD_NS = 100000000 };

/* How long after the last process has come a pass starts; the same on all processes. */
static int64_t lead_ns = 2 * SHORTEST_LEAD_NS;

/* ---- one pass -------------------------------------------------------------------------- */

/* Agree on a time a little after the last process has come here, on this machine's clock.
 *
 * offset_ns: this machine's clock minus that of rank 0. Whoever learns of the time after it has
 * passed says so before the next pass, and then the lead is doubled for all; else it shrinks. */
static int agree(struct loop *s, int64_t offset_ns, int64_t *start_ns, int64_t *late_ns)
{
    int64_t mine[2] = {now_ns() - offset_ns + lead_ns, s->late_ns}, all[2];
    MPI_Request request;
    int error = MPI_Iallreduce(mine, all, 2, MPI_INT64_T, MPI_MAX, s->quiet, &request);
    if (error == MPI_SUCCESS) {
        if (s->idle || s->work.shared_cores)
            error = nap_for(&request);
        else
            error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (error != MPI_SUCCESS)
        return error;
    if (all[1] > 0)
        lead_ns = 2 * lead_ns < LONGEST_LEAD_NS ? 2 * lead_ns : LONGEST_LEAD_NS;
    else if (lead_ns > SHORTEST_LEAD_NS)
        lead_ns -= lead_ns / 64;
    *start_ns = all[0] + offset_ns;
    *late_ns = now_ns() - *start_ns;
    s->late_ns = *late_ns = *late_ns > 0 ? *late_ns : 0;
    return wait_until(s, *start_ns);
}

static int64_t scaled(int64_t work_ns, double scale)
{
    double ns = (double)work_ns * scale;
    return ns < (double)LONGEST_NS ? (int64_t)ns : LONGEST_NS;
}

static int one_pass(struct loop *s, int64_t start_ns, double work_scale, int timed,
                    int64_t *times_ns, int64_t *links_ns)
{
    struct progress *p = s->progress;
    for (int64_t i = 0; i < s->count; i++) {
        const struct op *o = &s->ops[i];
        p->event = i;
        if (o->work_ns > 0 && work_scale > 0)
            compute(&s->work, scaled(o->work_ns, work_scale), p);
        int error;
        if (o->at_ns >= 0 && timed) {
            error = wait_until(s, start_ns + o->at_ns);
            if (error != MPI_SUCCESS)
                return error;
        }
        if (o->record >= 0) {
            int64_t begin_ns = now_ns();
            error = execute(s, o, links_ns);
            times_ns[2 * o->record + 1] = now_ns();
            times_ns[2 * o->record] = begin_ns;
        } else {
            error = execute(s, o, links_ns);
        }
        if (error != MPI_SUCCESS)
            return error;
    }
    return finish(s);
}

/* What p3s_run gives back, for every pass; times are those of this machine's clock. */
struct timings {
    int64_t *start_ns, *end_ns, *late_ns; /* one per pass */
    int64_t *times_ns;                    /* begin and end of every recorded event */
    int64_t *links_ns;                    /* of every message of a link program */
    int64_t *errors_ns, errors_room, errors;
};

/* Execute the events `passes` times. Returns 0, an MPI error code or one of the negative numbers
 * above; progress says where it ended. */
int p3s_run(struct loop *s, int64_t passes, int64_t offset_ns, double work_scale, int timed,
            struct timings *t)
{
    s->work.errors_ns = t->errors_ns;
    s->work.errors_room = t->errors_room;
    s->work.errors = 0;
    int error = MPI_SUCCESS;
    for (int64_t pass = 0; pass < passes && error == MPI_SUCCESS; pass++) {
        s->progress->event = 0;
        s->progress->pass = pass;
        s->progress->state = AT_START;
        s->work.debt_ns = 0;
        error = agree(s, offset_ns, &t->start_ns[pass], &t->late_ns[pass]);
        if (error != MPI_SUCCESS)
            break;
        s->progress->state = IN_PASS;
        error = one_pass(s, t->start_ns[pass], work_scale, timed,
                         t->times_ns + pass * s->records * 2, t->links_ns + pass * s->links);
        t->end_ns[pass] = now_ns();
    }
    t->errors = s->work.errors;
    if (error == MPI_SUCCESS)
        s->progress->state = OUTSIDE;
    return error;
}

/* ---- making ready ---------------------------------------------------------------------- */

/* A program of one process as Python hands it over. */
struct program {
    const struct event *events;
    const int64_t *lists, *record;
    const int *comms; /* Fortran handles */
    int64_t count, n_lists, n_slots, n_comms, records, idle;
};

void p3s_close(struct loop *s)
{
    if (!s)
        return;
    void *owned[] = {s->ops, s->out, s->in, s->slots, s->scratch, s->hidden, s->indices,
                     s->posted};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    free(s);
}

/* Look at all events before anything is done with them. */
static int check(struct loop *s, const struct program *g)
{
    int error = MPI_SUCCESS;
    for (int64_t i = 0; i < g->count && error == MPI_SUCCESS; i++) {
        const struct event *e = &g->events[i];
        s->progress->event = i;
        if (!is_sound(s, e, g->n_lists, g->n_comms)
            || (leaves_request(e->code) && !within(e->slot, 0, s->n_slots - 1)))
            return BAD_EVENT;
        error = need(s, e, g->comms);
    }
    return error;
}

static int fill(struct loop *s, const struct program *g, int *seen)
{
    s->progress->state = IN_PASS; /* so that an event that is wrong is named */
    int error = check(s, g);
    if (error != MPI_SUCCESS)
        return error;
    s->out = buffer_of(&s->out_room, s->pages);
    s->in = buffer_of(&s->in_room, s->pages);
    if (!s->out || !s->in)
        return NO_MEMORY;
    for (int64_t i = 0; i < g->count; i++) {
        s->progress->event = i;
        struct op *o = &s->ops[i];
        if ((error = ready(s, o, &g->events[i], g->lists, g->comms, seen)) != MPI_SUCCESS)
            return error;
        o->record = (int32_t)g->record[i];
        if (o->code == LINK_RECV) {
            o->link = (int32_t)s->links;
            s->links += o->number;
            if (s->links > INT32_MAX)
                return BAD_EVENT;
        }
    }
    s->progress->state = OUTSIDE;
    return MPI_SUCCESS;
}

/* Make a program ready. Returns NULL and says why in error when that is not possible. */
struct loop *p3s_open(const int *comms, const struct program *g, int pages, int shared_cores,
                      const int64_t *overshoot_ns, struct progress *progress, int *error)
{
    struct loop *s = calloc(1, sizeof *s);
    *error = NO_MEMORY;
    if (!s)
        return NULL;
    s->messages = MPI_Comm_f2c(comms[0]);
    s->control = MPI_Comm_f2c(comms[1]);
    s->quiet = MPI_Comm_f2c(comms[2]);
    s->progress = progress;
    s->count = g->count;
    s->n_slots = g->n_slots;
    s->records = g->records;
    s->idle = (int)g->idle;
    s->work.shared_cores = shared_cores;
    memcpy(s->work.overshoot_ns, overshoot_ns, sizeof s->work.overshoot_ns);
    s->pages = pages;
    if (!within(g->n_slots, 0, INT32_MAX) || !within(g->count, 0, INT32_MAX)) {
        *error = BAD_EVENT;
        free(s);
        return NULL;
    }
    MPI_Comm_size(s->messages, &s->size);
    at_least(&s->out_room, 64);
    at_least(&s->in_room, 64);
    size_t slots = (size_t)g->n_slots + 1, count = (size_t)g->count + 1;
    size_t longest = (size_t)g->n_lists + 1;
    s->ops = calloc(count, sizeof *s->ops);
    s->slots = malloc(slots * sizeof *s->slots);
    s->posted = calloc(slots, sizeof *s->posted);
    s->scratch = malloc(longest * sizeof *s->scratch);
    s->indices = malloc(longest * sizeof *s->indices);
    s->hidden = malloc(count * sizeof *s->hidden);
    for (int64_t i = 0; s->slots && i < g->n_slots; i++)
        s->slots[i] = MPI_REQUEST_NULL;
    if (s->ops && s->slots && s->posted && s->scratch && s->indices && s->hidden) {
        int *seen = calloc(slots, sizeof *seen);
        *error = seen ? fill(s, g, seen) : NO_MEMORY;
        free(seen);
    }
    if (*error == MPI_SUCCESS)
        return s;
    p3s_close(s);
    return NULL;
}

/* ---- for the watchdog, and clocks ------------------------------------------------------- */

/* Give the events whose requests are outstanding; returns how many there are. */
int64_t p3s_outstanding(const struct loop *s, int64_t *events, int64_t room)
{
    int64_t found = 0;
    for (int64_t i = 0; i < s->n_slots; i++)
        if (s->slots[i] != MPI_REQUEST_NULL) {
            if (found < room)
                events[found] = s->posted[i];
            found++;
        }
    return found;
}

/* Measure how sleeps overshoot on this machine. */
void p3s_calibrate(int64_t *overshoot_ns)
{
    struct clockwork w = {0};
    calibrate(&w);
    memcpy(overshoot_ns, w.overshoot_ns, sizeof w.overshoot_ns);
}

/* Compare this machine's clock with that of a peer, which calls this too; `asks` is the one that
 * learns: its clock minus the peer's, half of the shortest round trip, and when (its clock). */
int p3s_compare_clocks(int fortran_comm, int peer, int asks, int64_t rounds, int64_t *result)
{
    MPI_Comm comm = MPI_Comm_f2c(fortran_comm);
    int64_t shortest_ns = INT64_MAX;
    for (int64_t round = 0; round < rounds; round++) {
        int64_t begin_ns = now_ns(), theirs_ns = begin_ns;
        int error;
        if (asks) {
            error = MPI_Send(&begin_ns, 1, MPI_INT64_T, peer, 1, comm);
            if (error == MPI_SUCCESS)
                error = MPI_Recv(&theirs_ns, 1, MPI_INT64_T, peer, 1, comm, MPI_STATUS_IGNORE);
        } else {
            error = MPI_Recv(&begin_ns, 1, MPI_INT64_T, peer, 1, comm, MPI_STATUS_IGNORE);
            theirs_ns = now_ns();
            if (error == MPI_SUCCESS)
                error = MPI_Send(&theirs_ns, 1, MPI_INT64_T, peer, 1, comm);
        }
        if (error != MPI_SUCCESS)
            return error;
        int64_t end_ns = now_ns();
        if (asks && end_ns - begin_ns < shortest_ns) {
            shortest_ns = end_ns - begin_ns;
            result[0] = begin_ns + shortest_ns / 2 - theirs_ns;
            result[1] = (shortest_ns + 1) / 2;
            result[2] = begin_ns + shortest_ns / 2;
        }
    }
    return MPI_SUCCESS;
}
