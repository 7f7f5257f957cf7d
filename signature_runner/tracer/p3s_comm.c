/* Communicators in world ranks, by local MPI calls only. */
#include "p3s_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct p3s_map comms;
static int next_comm_id;

/* Communicators of MPI_Comm_idup that nobody has used yet. Their handles may be written at any
 * time until the request is complete, so they are known by their members. */
struct pending { struct pending *next; const char *op; int parent, count, *members; };
static struct pending *pending;

static void take_pending(const int *members, int count, const char **op, int *parent)
{
    for (struct pending **at = &pending; *at; at = &(*at)->next) {
        struct pending *p = *at;
        if (p->count != count || memcmp(p->members, members, sizeof(int) * (size_t)count))
            continue;
        *op = p->op;
        *parent = p->parent;
        *at = p->next;
        free(p->members);
        free(p);
        return;
    }
}

void p3s_world_ranks(MPI_Group group, int n, int *world)
{
    int *own = calloc((size_t)n + 1, sizeof(int));
    for (int i = 0; i < n && own; i++)
        own[i] = i;
    if (!own || PMPI_Group_translate_ranks(group, n, own, p3s_world_group, world) != MPI_SUCCESS)
        for (int i = 0; i < n; i++)
            world[i] = P3S_NONE;
    for (int i = 0; i < n; i++)
        if (world[i] < 0)
            world[i] = P3S_NONE; /* outside this MPI_COMM_WORLD (spawned, connected) */
    free(own);
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void write_comm(const struct p3s_comm *c, MPI_Comm comm, int parent, const char *op,
                       int *members, int count)
{
    int topology = MPI_UNDEFINED, dims = 0;
    size_t name_bytes = strlen(op);
    if (!c->inter && PMPI_Topo_test(comm, &topology) == MPI_SUCCESS && topology == MPI_CART &&
        PMPI_Cartdim_get(comm, &dims) != MPI_SUCCESS)
        dims = 0;
    size_t ints = (size_t)count + 3 * (size_t)dims;
    int32_t head[6] = {c->id, parent, c->inter, count, dims, (int32_t)name_bytes};
    int32_t *tail = malloc(sizeof(int32_t) * ints + name_bytes + 8);
    if (!tail)
        return;
    memcpy(tail, members, sizeof(int32_t) * (size_t)count);
    if (dims)
        PMPI_Cart_get(comm, dims, tail + count, tail + count + dims, tail + count + 2 * dims);
    memcpy(tail + ints, op, name_bytes);
    p3s_define(P3S_REC_COMM, head, sizeof head, tail, sizeof(int32_t) * ints + name_bytes);
    free(tail);
}

/* World ranks of all members in one new array, of an intercommunicator the own side first. */
static int *world_ranks(MPI_Comm comm, int size, int remote)
{
    MPI_Group group;
    int *members = malloc(sizeof(int) * (size_t)(size + remote + 1));
    if (!members)
        return NULL;
    PMPI_Comm_group(comm, &group);
    p3s_world_ranks(group, size, members);
    PMPI_Group_free(&group);
    if (remote) {
        PMPI_Comm_remote_group(comm, &group);
        p3s_world_ranks(group, remote, members + size);
        PMPI_Group_free(&group);
    }
    return members;
}

static void sizes_of(MPI_Comm comm, int *size, int *remote)
{
    int inter = 0;
    *size = *remote = 0;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, size);
    if (inter)
        PMPI_Comm_remote_size(comm, remote);
}

/* As they are written: both sides of an intercommunicator describe the same set, so that they
 * merge to one communicator. */
static int *members_of(MPI_Comm comm, int *count)
{
    int size, remote;
    sizes_of(comm, &size, &remote);
    int *members = world_ranks(comm, size, remote);
    *count = members ? size + remote : 0;
    if (members && remote)
        qsort(members, (size_t)*count, sizeof(int), ascending);
    return members;
}

static struct p3s_comm *as_world(MPI_Comm comm);

/* The record of a communicator, made at its first use. Needs p3s_lock. */
struct p3s_comm *p3s_comm_of(MPI_Comm comm, const char *op, int parent)
{
    struct p3s_comm *c = p3s_map_get(&comms, P3S_HANDLE(comm));
    int size, remote, *members;
    if (c || (comm == p3s_mpi.comm_world && (c = as_world(comm))))
        return c;
    c = calloc(1, sizeof *c);
    if (!c) {
        p3s_stop("no memory for the trace", ENOMEM);
        return NULL;
    }
    sizes_of(comm, &size, &remote);
    PMPI_Comm_rank(comm, &c->me);
    members = world_ranks(comm, size, remote);
    c->inter = remote > 0;
    c->id = next_comm_id++;
    c->size = remote ? remote : size;
    c->world = malloc(sizeof(int) * (size_t)(c->size + 1));
    if (!members || !c->world) {
        free(members);
        free(c->world);
        free(c);
        p3s_stop("no memory for the trace", ENOMEM);
        return NULL;
    }
    memcpy(c->world, members + (remote ? size : 0), sizeof(int) * (size_t)c->size);
    if (remote)
        qsort(members, (size_t)(size + remote), sizeof(int), ascending);
    c->refs = 1;
    if (!op && comm != p3s_mpi.comm_world && comm != p3s_mpi.comm_self)
        take_pending(members, size + remote, &op, &parent);
    if (!op)
        op = comm == p3s_mpi.comm_world ? "MPI_COMM_WORLD"
             : comm == p3s_mpi.comm_self ? "MPI_COMM_SELF" : "unknown";
    write_comm(c, comm, parent, op, members, size + remote);
    free(members);
    p3s_map_put(&comms, P3S_HANDLE(comm), c);
    return c;
}

struct p3s_comm *p3s_known(MPI_Comm comm)
{
    return p3s_comm_of(comm, NULL, P3S_NONE);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static struct p3s_comm *session_world;  /* NULL where MPI_COMM_WORLD was there first */
static bool stands_for_world;           /* a communicator of the program does */

void p3s_comm_of_sessions(const struct p3s_world *world)
{
    static const char name[] = "MPI_COMM_WORLD";
    struct p3s_comm *c = calloc(1, sizeof *c);
    int *members = malloc(sizeof(int) * (size_t)(world->size + 1));
    int32_t head[6] = {next_comm_id, P3S_NONE, 0, world->size, 0, sizeof name - 1};
    int32_t *tail = malloc(sizeof(int32_t) * (size_t)world->size + sizeof name);
    for (int i = 0; members && tail && i < world->size; i++)
        tail[i] = members[i] = i;
    p3s_hold();
    if (!c || !members || !tail) {
        p3s_stop("no memory for the trace", ENOMEM);
    } else {
        memcpy(tail + world->size, name, sizeof name - 1);
        *c = (struct p3s_comm){.id = next_comm_id++, .size = world->size, .me = world->rank,
                               .refs = 1, .world = members};
        p3s_define(P3S_REC_COMM, head, sizeof head, tail,
                   sizeof(int32_t) * (size_t)world->size + sizeof name - 1);
        session_world = c;
    }
    p3s_let_go();
    free(tail);
}

int p3s_world_id(void)
{
    return session_world ? session_world->id : p3s_id_of(p3s_mpi.comm_world);
}

/* One communicator at a time of all processes in their order is the world, as MPI_COMM_WORLD is in
 * other programs. Needs p3s_lock. */
static struct p3s_comm *as_world(MPI_Comm comm)
{
    int size = 0, remote = 0;
    if (!session_world || (stands_for_world && comm != p3s_mpi.comm_world))
        return NULL;
    sizes_of(comm, &size, &remote);
    int *members = remote || size != session_world->size ? NULL : world_ranks(comm, size, 0);
    bool same = members && !memcmp(members, session_world->world, sizeof(int) * (size_t)size);
    free(members);
    if (!same)
        return NULL;
    stands_for_world = true;
    session_world->refs++;
    p3s_map_put(&comms, P3S_HANDLE(comm), session_world);
    return session_world;
}

void p3s_release(struct p3s_comm *c)
{
    if (c && --c->refs == 0) {
        p3s_neighbours_free(c->around);
        free(c->world);
        free(c);
    }
}

int p3s_world_of(const struct p3s_comm *c, int rank)
{
    if (rank == MPI_PROC_NULL)
        return P3S_PROC_NULL;
    if (rank == MPI_ANY_SOURCE)
        return P3S_ANY;
    if (rank == MPI_ROOT)
        return p3s_world_rank;
    return c && rank >= 0 && rank < c->size ? c->world[rank] : P3S_NONE;
}

int p3s_fan(MPI_Comm comm)
{
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    int size = c ? c->size : 0;
    p3s_let_go();
    return size;
}

int p3s_here_size(MPI_Comm comm)
{
    int size = 0;
    PMPI_Comm_size(comm, &size);
    return size;
}

int p3s_me(MPI_Comm comm)
{
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    int me = c ? c->me : 0;
    p3s_let_go();
    return me;
}

int p3s_id_of(MPI_Comm comm)
{
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    int id = c ? c->id : P3S_NONE;
    p3s_let_go();
    return id;
}

/* Record of a communicator that was just made: whatever its handle meant before is over. */
static int made_now(struct p3s_here *h, MPI_Comm made, int parent)
{
    p3s_hold();
    p3s_release(p3s_map_take(&comms, P3S_HANDLE(made)));
    struct p3s_comm *c = parent == P3S_NONE ? as_world(made) : NULL;
    c = c ? c : p3s_comm_of(made, p3s_op_names[h->op], parent);
    int id = c ? c->id : P3S_NONE;
    p3s_let_go();
    return id;
}

void p3s_comm_made(struct p3s_here *h, MPI_Comm parent, MPI_Comm made)
{
    int id = p3s_id_of(parent);
    p3s_simple(h, id, 0);
    if (made != p3s_mpi.comm_null)
        made_now(h, made, id);
}

void p3s_comm_from_groups(struct p3s_here *h, MPI_Comm made)
{
    if (made == p3s_mpi.comm_null)
        p3s_nowhere(h);
    else
        p3s_simple(h, made_now(h, made, P3S_NONE), 0);
}

/* The process at the other end is of another world: the call itself is of no communicator. */
void p3s_comm_joined(struct p3s_here *h, MPI_Comm made)
{
    p3s_nowhere(h);
    if (made != p3s_mpi.comm_null)
        made_now(h, made, P3S_NONE);
}

void p3s_comm_idup(struct p3s_here *h, MPI_Comm parent)
{
    int id = p3s_id_of(parent);
    p3s_simple(h, id, 0);
    struct pending *p = malloc(sizeof *p), **last = &pending;
    if (!p)
        return;
    p3s_hold();
    *p = (struct pending){NULL, p3s_op_names[h->op], id, 0, NULL};
    p->members = members_of(parent, &p->count);
    while (*last)
        last = &(*last)->next;  /* the first made is the first used */
    *last = p;
    p3s_let_go();
}

bool p3s_spawned(void)
{
    MPI_Comm parent = p3s_mpi.comm_null;
    return PMPI_Comm_get_parent(&parent) == MPI_SUCCESS && parent != p3s_mpi.comm_null;
}

struct p3s_comm *p3s_comm_forget(MPI_Comm comm)
{
    p3s_hold();
    struct p3s_comm *c = p3s_map_take(&comms, P3S_HANDLE(comm));
    /* Nothing is asked about one that is not known: it may have been freed before. */
    if (!c && pending && comm != p3s_mpi.comm_null && (c = p3s_known(comm)))
        p3s_map_take(&comms, P3S_HANDLE(comm));
    p3s_let_go();
    return c;
}

static void drop(struct p3s_comm *c)
{
    p3s_hold();
    stands_for_world = stands_for_world && c != session_world;
    p3s_release(c);
    p3s_let_go();
}

void p3s_comm_freed(struct p3s_here *h, struct p3s_comm *c)
{
    p3s_simple(h, c ? c->id : P3S_NONE, 0);
    drop(c);
}

void p3s_comm_kept(uint64_t handle, struct p3s_comm *c)
{
    p3s_hold();
    if (c)
        p3s_release(p3s_map_put(&comms, handle, c));
    p3s_let_go();
}

void p3s_comm_gone(MPI_Comm comm)
{
    if (!p3s_active)
        return;
    p3s_hold();
    struct p3s_comm *c = p3s_map_take(&comms, P3S_HANDLE(comm));
    p3s_let_go();
    drop(c);
}
