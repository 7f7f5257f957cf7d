/* Neighbourhood collectives: who the neighbours are, and how many bytes each of them gets. Local MPI
 * calls only. Also lists of numbers in general, which the calls that have them refer to. */
#include "p3s_inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists of numbers ---------------------------------------------------------------------- */

/* When so many are known they are forgotten; one that comes again gets another number. */
#define MOST_LISTS (1 << 16)

struct list { struct list *next; uint64_t hash; uint32_t number; int length; int64_t values[]; };

static struct list **lists;
static uint32_t last_number, lists_kept;

static void forget_lists(void)
{
    for (size_t i = 0; i < MOST_LISTS; i++)
        for (struct list *l = lists[i], *next; l; l = next) {
            next = l->next;
            free(l);
        }
    memset(lists, 0, MOST_LISTS * sizeof *lists);
    lists_kept = 0;
}

uint32_t p3s_numbers(const int64_t *values, int length)
{
    uint64_t hash = (uint64_t)length;
    size_t bytes = sizeof *values * (size_t)length;
    if (!lists && !(lists = calloc(MOST_LISTS, sizeof *lists)))
        return 0;
    for (int i = 0; i < length; i++)
        hash = p3s_mix(hash ^ (uint64_t)values[i]);
    struct list **at = &lists[hash % MOST_LISTS];
    for (struct list *l = *at; l; l = l->next)
        if (l->hash == hash && l->length == length && !memcmp(l->values, values, bytes))
            return l->number;
    if (lists_kept == MOST_LISTS)
        forget_lists();
    struct list *l = malloc(sizeof *l + bytes);
    uint32_t head[2] = {last_number + 1, (uint32_t)length};
    if (!l || !p3s_define(P3S_REC_NUMBERS, head, sizeof head, values, bytes)) {
        free(l);
        return 0;
    }
    *l = (struct list){.next = *at, .hash = hash, .number = ++last_number, .length = length};
    memcpy(l->values, values, bytes);
    *at = l;
    lists_kept++;
    return l->number;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

static struct p3s_neighbours nobody;

/* Ranks in the communicator, in the order of the slots. */
static int *ranks_of(MPI_Comm comm, struct p3s_neighbours *n)
{
    int topology = MPI_UNDEFINED, weighted = 0, me = 0, *ranks = NULL;
    if (PMPI_Topo_test(comm, &topology) != MPI_SUCCESS)
        return NULL;
    if (topology == MPI_CART && PMPI_Cartdim_get(comm, &n->out) == MPI_SUCCESS) {
        n->out = n->in = 2 * n->out;
        ranks = malloc(sizeof *ranks * (size_t)(2 * n->out + 1));
        for (int i = 0; ranks && i < n->out; i += 2) {
            PMPI_Cart_shift(comm, i / 2, 1, &ranks[i], &ranks[i + 1]);
            memcpy(ranks + n->out + i, ranks + i, 2 * sizeof *ranks);
        }
    } else if (topology == MPI_GRAPH && PMPI_Comm_rank(comm, &me) == MPI_SUCCESS &&
               PMPI_Graph_neighbors_count(comm, me, &n->out) == MPI_SUCCESS) {
        n->in = n->out;
        ranks = malloc(sizeof *ranks * (size_t)(2 * n->out + 1));
        if (ranks) {
            PMPI_Graph_neighbors(comm, me, n->out, ranks);
            memcpy(ranks + n->out, ranks, sizeof *ranks * (size_t)n->out);
        }
    } else if (topology == MPI_DIST_GRAPH &&
               PMPI_Dist_graph_neighbors_count(comm, &n->in, &n->out, &weighted) == MPI_SUCCESS) {
        size_t slots = (size_t)(n->in + n->out);
        ranks = malloc(2 * sizeof *ranks * (slots + 1));
        if (ranks)      /* with the weights behind them, which nobody reads */
            PMPI_Dist_graph_neighbors(comm, n->in, ranks + n->out, ranks + slots, n->out, ranks,
                                      ranks + slots + n->in);
    }
    return ranks;
}

/* Needs p3s_lock. */
static struct p3s_neighbours *ask(MPI_Comm comm, const struct p3s_comm *c)
{
    struct p3s_neighbours *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    int *ranks = ranks_of(comm, n), slots = n->in + n->out;
    size_t longest = 2 * (size_t)slots + 5;
    n->there = malloc((size_t)slots + 1);
    n->list = calloc(5 * longest, sizeof *n->list);
    if (!ranks || !n->there || !n->list) {
        free(n->there);
        free(n->list);
        free(ranks);
        *n = (struct p3s_neighbours){0};
        return n;
    }
    for (int i = 0; i < 4; i++)
        n->last[i].list = n->list + (size_t)(i + 1) * longest;
    for (int i = 0; i < slots; i++) {
        n->there[i] = ranks[i] != MPI_PROC_NULL;
        n->receivers += i < n->out && n->there[i];
        ranks[i] = p3s_world_of(c, ranks[i]);
    }
    int32_t head[3] = {c->id, n->out, n->in};
    p3s_define(P3S_REC_NEIGHBOURS, head, sizeof head, ranks, sizeof *ranks * (size_t)slots);
    free(ranks);
    return n;
}

struct p3s_neighbours *p3s_neighbours(MPI_Comm comm)
{
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    if (c && !c->around)
        c->around = ask(comm, c);
    p3s_let_go();
    return c && c->around ? c->around : &nobody;
}

void p3s_neighbours_free(struct p3s_neighbours *n)
{
    if (n) {
        free(n->there);
        free(n->list);
    }
    free(n);
}

/* What was computed for the same arguments the last time; NULL: it is to be computed, into *to.
 * A type that was freed may have given its handle to another. */
static bool known(struct p3s_neighbours *n, int kind, int length, struct p3s_sizes **to)
{
    struct p3s_sizes *last = *to = &n->last[kind];
    n->list[length++] = p3s_types_freed;
    size_t bytes = sizeof *n->list * (size_t)length;
    if (last->length == length && !memcmp(n->list, last->list, bytes))
        return true;
    memcpy(last->list, n->list, bytes);
    last->length = length;
    return false;
}

static int64_t bytes_of(uint64_t type)
{
    return p3s_type_of((MPI_Datatype)(uintptr_t)type)->size;
}

static void scale(struct p3s_neighbours *n, int first, int slot, int length, int64_t size)
{
    for (int i = 0; i < length; i++)
        n->list[first + i] *= n->there[slot + i] ? size : 0;
}

int64_t p3s_sizes_same(struct p3s_here *h, struct p3s_neighbours *n, int64_t sent,
                       MPI_Datatype sendtype, int64_t received, MPI_Datatype recvtype)
{
    struct p3s_sizes *last;
    if (!n->list)
        return 0;
    p3s_hold();
    int64_t arguments[4] = {sent, received, (int64_t)P3S_HANDLE(sendtype),
                            (int64_t)P3S_HANDLE(recvtype)};
    memcpy(n->list, arguments, sizeof arguments);
    if (!known(n, 0, 4, &last)) {
        n->list[0] *= bytes_of(P3S_HANDLE(sendtype));
        n->list[1] *= bytes_of(P3S_HANDLE(recvtype));
        last->number = p3s_numbers(n->list, 2);
        last->sent = sent * n->receivers;
    }
    h->numbers = last->number;
    p3s_let_go();
    return last->sent;
}

int64_t p3s_sizes_gathered(struct p3s_here *h, struct p3s_neighbours *n, int64_t sent,
                           MPI_Datatype sendtype, MPI_Datatype recvtype)
{
    struct p3s_sizes *last;
    if (!n->list)
        return 0;
    p3s_hold();
    n->list[0] = sent;
    n->list[n->in + 1] = (int64_t)P3S_HANDLE(sendtype);
    n->list[n->in + 2] = (int64_t)P3S_HANDLE(recvtype);
    if (!known(n, 1, n->in + 3, &last)) {
        n->list[0] *= bytes_of(P3S_HANDLE(sendtype));
        scale(n, 1, n->out, n->in, bytes_of(P3S_HANDLE(recvtype)));
        last->number = p3s_numbers(n->list, 1 + n->in);
        last->sent = sent * n->receivers;
    }
    h->numbers = last->number;
    p3s_let_go();
    return last->sent;
}

int64_t p3s_sizes_each(struct p3s_here *h, struct p3s_neighbours *n, MPI_Datatype sendtype,
                       MPI_Datatype recvtype)
{
    struct p3s_sizes *last;
    int slots = n->out + n->in;
    if (!n->list)
        return 0;
    p3s_hold();
    n->list[slots] = (int64_t)P3S_HANDLE(sendtype);
    n->list[slots + 1] = (int64_t)P3S_HANDLE(recvtype);
    if (!known(n, 2, slots + 2, &last)) {
        last->sent = 0;
        for (int i = 0; i < n->out; i++)
            last->sent += n->there[i] ? n->list[i] : 0;
        scale(n, 0, 0, n->out, bytes_of(P3S_HANDLE(sendtype)));
        scale(n, n->out, n->out, n->in, bytes_of(P3S_HANDLE(recvtype)));
        last->number = p3s_numbers(n->list, slots);
    }
    h->numbers = last->number;
    p3s_let_go();
    return last->sent;
}

struct p3s_moved p3s_sizes_typed(struct p3s_here *h, struct p3s_neighbours *n,
                                 const MPI_Datatype *sendtypes, const MPI_Datatype *recvtypes)
{
    struct p3s_sizes *last;
    int slots = n->out + n->in;
    if (!n->list)
        return (struct p3s_moved){0, p3s_mpi.type_null};
    p3s_hold();
    for (int i = 0; i < slots; i++) {
        /* Of what moves nothing the type means nothing. */
        bool moves = n->there[i] && n->list[i];
        MPI_Datatype type = i < n->out ? sendtypes[i] : recvtypes[i - n->out];
        n->list[i] = moves ? n->list[i] : 0;
        n->list[slots + i] = moves ? (int64_t)P3S_HANDLE(type) : 0;
    }
    if (!known(n, 3, 2 * slots, &last)) {
        last->moved = (struct p3s_moved){0, p3s_mpi.type_null};
        for (int i = slots - 1; i >= 0; i--) {
            if (!n->list[i])
                continue;
            n->list[i] *= bytes_of((uint64_t)n->list[slots + i]);
            if (i < n->out) {
                last->moved.bytes += n->list[i];
                last->moved.type = sendtypes[i];
            }
        }
        last->number = p3s_numbers(n->list, slots);
    }
    h->numbers = last->number;
    p3s_let_go();
    return last->moved;
}
