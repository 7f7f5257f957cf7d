/* Events of point-to-point, probe, collective and other calls. */
#include "p3s_inside.h"

#include <stdlib.h>

static struct p3s_map messages;         /* matched by MPI_Mprobe, not yet received */

struct p3s_call p3s_call_of(uint32_t op, uint32_t site, int comm, int peer, int tag)
{
    struct p3s_call call = {.op = op, .elem_bytes = 1, .site = site, .comm = comm, .peer = peer,
                            .tag = tag == MPI_ANY_TAG ? P3S_NONE : tag, .root = P3S_NONE,
                            .thread = p3s_self.number, .depth = p3s_self.site_depth,
                            .window = P3S_NONE, .team = p3s_call_team()};
    return call;
}

void p3s_set_bytes(struct p3s_call *call, int64_t count, MPI_Datatype type)
{
    const struct p3s_type *facts = p3s_type_of(type);
    call->elem_bytes = facts->element;
    call->bytes = count * facts->size;
    call->count = count;
    if (facts->block < call->bytes)
        call->block = facts->block;     /* else one piece */
}

/* The first event of an MPI call carries its times; a second one follows it and carries none. */
uint64_t p3s_put(struct p3s_here *h, const struct p3s_call *call)
{
    bool first = !h->recorded;
    p3s_self.last_event = P3S_NO_EVENT;
    if (call->site == P3S_INSIDE_MPI)
        return P3S_NO_EVENT;    /* the library's own doing */
    h->recorded = true;
    struct p3s_call with_memory;
    if (__builtin_expect(h->memory && !call->memory, 0)) {
        with_memory = *call;
        with_memory.memory = h->memory;
        call = &with_memory;
    }
    if (first && p3s_header->paused)
        __atomic_fetch_add(&p3s_header->paused_calls, 1, __ATOMIC_RELAXED);
    uint64_t event = p3s_put_event(call, (first ? h->t0_ns : h->t1_ns) - p3s_epoch_ns,
                                   first ? h->t1_ns - h->t0_ns : 0, first ? h->work : 0,
                                   first ? h->counter : NULL);
    p3s_self.last_event = event;
    if (__builtin_expect(p3s_teams, 0) && first)
        p3s_put_threads(event, &p3s_self.segment);
    return event;
}

void p3s_simple(struct p3s_here *h, int comm, int64_t bytes)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_call call = p3s_call_of(h->op, site, comm, P3S_NONE, P3S_NONE);
    call.bytes = call.count = bytes;
    call.tag = P3S_NONE;
    p3s_put(h, &call);
    p3s_let_go();
}

void p3s_plain(struct p3s_here *h, MPI_Comm comm) { p3s_simple(h, p3s_id_of(comm), 0); }

void p3s_nowhere(struct p3s_here *h) { p3s_simple(h, P3S_NONE, 0); }

void p3s_completed(struct p3s_here *h, int count) { p3s_simple(h, P3S_NONE, count); }

void p3s_poll(struct p3s_here *h)
{
    if (p3s_header->paused)
        return;
    __atomic_fetch_add(&p3s_header->failed_polls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&p3s_header->failed_poll_ns, h->t1_ns - h->t0_ns, __ATOMIC_RELAXED);
}

void p3s_resolved(const struct p3s_comm *c, uint64_t ordinal, const MPI_Status *status)
{
    MPI_Count bytes = 0;
    if (PMPI_Get_elements_x(status, p3s_mpi.byte, &bytes) != MPI_SUCCESS || bytes < 0)
        bytes = 0;
    p3s_put_resolved(ordinal, p3s_world_of(c, status->MPI_SOURCE), status->MPI_TAG, bytes);
}

bool p3s_wild(int source, int tag)
{
    return source != MPI_PROC_NULL && (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG);
}

MPI_Status *p3s_status(MPI_Status *user, MPI_Status *own, int source, int tag)
{
    return user == MPI_STATUS_IGNORE && p3s_wild(source, tag) ? own : user;
}

MPI_Status *p3s_any_status(MPI_Status *user, MPI_Status *own)
{
    return user == MPI_STATUS_IGNORE ? own : user;
}

/* Needs p3s_lock. */
uint64_t p3s_described(struct p3s_here *h, uint32_t op, uint32_t site, const struct p3s_comm *c,
                        int peer, int tag, int64_t count, MPI_Datatype type)
{
    struct p3s_call call = p3s_call_of(op, site, c ? c->id : P3S_NONE, p3s_world_of(c, peer), tag);
    p3s_set_bytes(&call, count, type);
    return p3s_put(h, &call);
}

void p3s_p2p(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int64_t count,
             MPI_Datatype type)
{
    uint32_t site = p3s_site();
    p3s_hold();
    p3s_described(h, h->op, site, p3s_known(comm), peer, tag, count, type);
    p3s_let_go();
}

void p3s_recv(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
              MPI_Datatype type, const MPI_Status *status)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    uint64_t ordinal = p3s_described(h, h->op, site, c, source, tag, count, type);
    if (p3s_wild(source, tag))
        p3s_resolved(c, ordinal, status);
    p3s_let_go();
}

void p3s_sendrecv(struct p3s_here *h, MPI_Comm comm, int dest, int sendtag, int64_t sendcount,
                  MPI_Datatype sendtype, int source, int recvtag, int64_t recvcount,
                  MPI_Datatype recvtype, const MPI_Status *status)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    p3s_described(h, h->op, site, c, dest, sendtag, sendcount, sendtype);
    uint64_t ordinal = p3s_described(h, P3S_OP_Sendrecv_recv, site, c, source, recvtag, recvcount,
                               recvtype);
    if (p3s_wild(source, recvtag))
        p3s_resolved(c, ordinal, status);
    p3s_let_go();
}

void p3s_probe(struct p3s_here *h, MPI_Comm comm, int source, int tag, const MPI_Status *status)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    struct p3s_call call = p3s_call_of(h->op, site, c ? c->id : P3S_NONE, p3s_world_of(c, source), tag);
    call.bytes = call.count = 1; /* one message found */
    uint64_t ordinal = p3s_put(h, &call);
    if (p3s_wild(source, tag))
        p3s_resolved(c, ordinal, status);
    p3s_let_go();
}

/* ---- matched messages -------------------------------------------------------------------- */

void p3s_message_put(uint64_t handle, MPI_Comm comm, const MPI_Status *status)
{
    struct p3s_message *m = malloc(sizeof *m);
    if (!m)
        return;
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    *m = (struct p3s_message){c ? c->id : P3S_NONE, p3s_world_of(c, status->MPI_SOURCE),
                              status->MPI_TAG};
    free(p3s_map_put(&messages, handle, m));
    p3s_let_go();
}

struct p3s_message p3s_message_take(uint64_t handle)
{
    struct p3s_message m = {P3S_NONE, P3S_ANY, P3S_NONE};
    if (handle == P3S_HANDLE(p3s_mpi.message_no_proc))
        m.peer = P3S_PROC_NULL;
    p3s_hold();
    struct p3s_message *found = p3s_map_take(&messages, handle);
    p3s_let_go();
    if (found)
        m = *found;
    free(found);
    return m;
}

void p3s_mrecv(struct p3s_here *h, const struct p3s_message *m, int64_t count, MPI_Datatype type)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_call call = p3s_call_of(h->op, site, m->comm, m->peer, m->tag);
    call.tag = m->tag;
    p3s_set_bytes(&call, count, type);
    p3s_put(h, &call);
    p3s_let_go();
}

/* ---- collectives -------------------------------------------------------------------------- */

static void collective(struct p3s_here *h, MPI_Comm comm, int root, int64_t count,
                       MPI_Datatype type, int64_t bytes)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    struct p3s_call call = p3s_call_of(h->op, site, c ? c->id : P3S_NONE, P3S_NONE, P3S_NONE);
    call.tag = P3S_NONE;
    call.numbers = h->numbers;
    p3s_set_bytes(&call, count, type);
    if (bytes >= 0) {
        call.bytes = bytes;
        call.count = bytes / call.elem_bytes;
    }
    if (root != P3S_NO_RANK)
        call.root = root == MPI_ROOT ? p3s_world_rank : p3s_world_of(c, root);
    p3s_put(h, &call);
    p3s_let_go();
}

void p3s_coll(struct p3s_here *h, MPI_Comm comm, int root, int64_t count, MPI_Datatype type)
{
    collective(h, comm, root, count, type, -1);
}

void p3s_coll_bytes(struct p3s_here *h, MPI_Comm comm, int64_t bytes, MPI_Datatype type)
{
    collective(h, comm, P3S_NO_RANK, 0, type, bytes);
}
