/* Persistent collectives, windows and files. Local MPI calls only. */
#include "p3s_inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- persistent collectives ---------------------------------------------------------------- */

void p3s_coll_init(struct p3s_here *h, uint64_t request, MPI_Comm comm, int root, int64_t count,
                   MPI_Datatype type)
{
    /* MPI_ANY_TAG stands for "no tag" */
    p3s_persistent(h, comm, P3S_NO_RANK, MPI_ANY_TAG, root, count, type, request);
}

void p3s_coll_bytes_init(struct p3s_here *h, uint64_t request, MPI_Comm comm, int64_t bytes,
                         MPI_Datatype type)
{
    int64_t size = p3s_type_bytes(type);
    if (size > 0 && bytes % size == 0)
        p3s_coll_init(h, request, comm, P3S_NO_RANK, bytes / size, type);
    else
        p3s_coll_init(h, request, comm, P3S_NO_RANK, bytes, p3s_mpi.byte);
}

/* ---- MPI_Isendrecv ------------------------------------------------------------------------- */

void p3s_second_half(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
                     MPI_Datatype type, uint64_t request)
{
#ifdef OPEN_MPI
    p3s_irecv(h, comm, source, tag, count, type, request);
#else
    /* The status that MPICH (4.0 to 5.0) gives for this request is not the receive's: from
     * MPI_ANY_SOURCE the partner stays open, rather than being a wrong one. */
    p3s_p2p(h, comm, source, tag, count, type);
    p3s_posted(request);
#endif
}

/* ---- windows and files --------------------------------------------------------------------- */

struct p3s_opened { struct p3s_comm *comm; int id; };

static struct p3s_map windows, files;
static int next_window;

int p3s_next_window(void) { return next_window++; }

static struct p3s_map *map_of(int kind) { return kind == P3S_FILE ? &files : &windows; }

static void drop(struct p3s_opened *o)
{
    if (o)
        p3s_release(o->comm);
    free(o);
}

void p3s_opened(struct p3s_here *h, MPI_Comm comm, int kind, uint64_t handle)
{
    p3s_plain(h, comm);
    struct p3s_opened *o = malloc(sizeof *o);
    if (!o)
        return;
    p3s_hold();
    /* Kept alive: the program may free the communicator before the window. */
    if ((o->comm = p3s_known(comm)))
        o->comm->refs++;
    const char *made = p3s_op_names[h->op];
    int32_t head[3] = {o->id = p3s_next_window(), o->comm ? o->comm->id : P3S_NONE,
                       kind == P3S_FILE ? 2 : 1};
    p3s_define(P3S_REC_WINDOW, head, sizeof head, made, strlen(made));
    struct p3s_opened *old = p3s_map_put(map_of(kind), handle, o);
    drop(old);
    p3s_let_go();
}

int p3s_opened_number(int kind, uint64_t handle)
{
    p3s_hold();
    struct p3s_opened *o = p3s_map_get(map_of(kind), handle);
    p3s_let_go();
    return o ? o->id : P3S_NONE;
}

struct p3s_opened *p3s_closing(int kind, uint64_t handle)
{
    p3s_hold();
    struct p3s_opened *o = p3s_map_take(map_of(kind), handle);
    p3s_let_go();
    return o;
}

void p3s_closed(struct p3s_here *h, struct p3s_opened *o)
{
    p3s_simple(h, o && o->comm ? o->comm->id : P3S_NONE, 0);
    p3s_hold();
    drop(o);
    p3s_let_go();
}

void p3s_not_closed(int kind, uint64_t handle, struct p3s_opened *o)
{
    p3s_hold();
    if (o)
        drop(p3s_map_put(map_of(kind), handle, o));
    p3s_let_go();
}

static struct p3s_call call_on(struct p3s_here *h, int kind, uint64_t handle, uint32_t site,
                               int peer)
{
    struct p3s_opened *o = p3s_map_get(map_of(kind), handle);
    struct p3s_comm *c = o ? o->comm : NULL;
    struct p3s_call call = p3s_call_of(h->op, site, c ? c->id : P3S_NONE,
                                       peer == P3S_NO_RANK ? P3S_NONE : p3s_world_of(c, peer),
                                       MPI_ANY_TAG);
    call.window = o ? o->id : P3S_NONE;
    return call;
}

void p3s_on(struct p3s_here *h, int kind, uint64_t handle, int peer, int64_t count,
            MPI_Datatype type)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_call call = call_on(h, kind, handle, site, peer);
    p3s_set_bytes(&call, count, type);
    p3s_put(h, &call);
    p3s_let_go();
}

/* ---- synchronisation of windows: what the program asserts, and the group -------------------- */

static int bits_of(int assert)
{
    int bits = (assert & MPI_MODE_NOCHECK ? P3S_NOCHECK : 0) |
               (assert & MPI_MODE_NOSTORE ? P3S_NOSTORE : 0) |
               (assert & MPI_MODE_NOPUT ? P3S_NOPUT : 0) |
               (assert & MPI_MODE_NOPRECEDE ? P3S_NOPRECEDE : 0) |
               (assert & MPI_MODE_NOSUCCEED ? P3S_NOSUCCEED : 0);
    return bits ? bits : P3S_NONE;
}

void p3s_sync(struct p3s_here *h, uint64_t handle, int peer, int assert)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_call call = call_on(h, P3S_WINDOW, handle, site, peer);
    call.tag = bits_of(assert);
    p3s_put(h, &call);
    p3s_let_go();
}

void p3s_sync_group(struct p3s_here *h, uint64_t handle, MPI_Group group, int assert)
{
    uint32_t site = p3s_site();
    int few_ranks[32], count = 0, *ranks = few_ranks;
    int64_t few[32], *list = few;
    if (PMPI_Group_size(group, &count) != MPI_SUCCESS)
        count = 0;
    if (count > 32) {
        ranks = malloc(sizeof *ranks * (size_t)count);
        list = malloc(sizeof *list * (size_t)count);
        count = ranks && list ? count : 0;
    }
    p3s_world_ranks(group, count, ranks);
    for (int i = 0; i < count; i++)
        list[i] = ranks[i];
    p3s_hold();
    struct p3s_call call = call_on(h, P3S_WINDOW, handle, site, P3S_NO_RANK);
    call.tag = bits_of(assert);
    call.numbers = count ? p3s_numbers(list, count) : 0;
    p3s_put(h, &call);
    p3s_let_go();
    if (ranks != few_ranks)
        free(ranks);
    if (list != few)
        free(list);
}
