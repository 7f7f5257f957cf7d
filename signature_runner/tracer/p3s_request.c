/* Requests from their posting to their completion: which event completes which, and what a
 * receive from anybody has received.
 *
 * An MPI may give several outstanding operations one handle (sends that were complete at once):
 * the requests of a handle are a queue, and a completion call takes the oldest. While it looks at
 * a request, that is out of the queue: once it is complete, another thread may be given its
 * handle. */
#include "p3s_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct p3s_request {
    uint64_t handle, ordinal;
    struct p3s_request *next;   /* younger one of the same handle; in the free list */
    struct p3s_comm *comm;      /* where a wildcard's source is translated, else NULL */
    bool wildcard, persistent, active, cancelling;
    int partitions, place;      /* of a partitioned one: how many, which of those that are known */
    int64_t part_bytes, part_count;
    uint32_t *ready;            /* number of the NUMBERS of each partition's MPI_Pready */
    struct p3s_call call;       /* of a persistent one */
};

#define LONGEST_QUEUE 65536

struct queue {
    uint64_t handle;
    size_t length;
    struct p3s_request *first, *last;
    struct queue *next;         /* in the bucket; in the free list */
};

static struct queue **bucket, *spare_queue;
static struct p3s_request *spare;
static size_t mask, used;       /* used: queues, none of them empty */

static bool grow(void)
{
    size_t bigger = bucket ? 4 * (mask + 1) : 256, old = bucket ? mask + 1 : 0;
    struct queue **fresh = calloc(bigger, sizeof *fresh);
    if (!fresh)
        return false;
    for (size_t i = 0; i < old; i++)
        for (struct queue *q = bucket[i], *next; q; q = next) {
            struct queue **at = &fresh[p3s_mix(q->handle) & (bigger - 1)];
            next = q->next;
            q->next = *at;
            *at = q;
        }
    free(bucket);
    bucket = fresh;
    mask = bigger - 1;
    return true;
}

static struct queue **place_of(uint64_t handle)
{
    struct queue **at = &bucket[p3s_mix(handle) & mask];
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static struct queue *queue_for(uint64_t handle)
{
    if ((!bucket || used > 2 * mask) && !grow() && !bucket)
        return NULL;
    struct queue **at = place_of(handle);
    if (*at)
        return *at;
    struct queue *q = spare_queue ? spare_queue : malloc(sizeof *q);
    if (!q)
        return NULL;
    if (q == spare_queue)
        spare_queue = q->next;
    *q = (struct queue){.handle = handle};
    *at = q;
    __atomic_store_n(&used, used + 1, __ATOMIC_RELAXED);
    return q;
}

/* Which numbers of partitioned requests are taken: used again, so that calls repeat themselves. */
static struct { bool *taken; int length; } places;

static int new_place(void)
{
    int at = 0;
    while (at < places.length && places.taken[at])
        at++;
    if (at == places.length) {
        int more = 2 * places.length + 16;
        bool *grown = realloc(places.taken, (size_t)more);
        if (!grown)
            return 0;
        memset(grown + places.length, 0, (size_t)(more - places.length));
        places.taken = grown;
        places.length = more;
    }
    places.taken[at] = true;
    return at;
}

static void release(struct p3s_request *r)
{
    p3s_release(r->comm);
    if (r->partitions && r->place < places.length)
        places.taken[r->place] = false;
    free(r->ready);
    r->next = spare;
    spare = r;
}

static void put_back(struct p3s_request *r)
{
    struct queue *q = queue_for(r->handle);
    if (!q) {
        release(r);
        return;
    }
    r->next = q->first;
    q->first = r;
    q->length++;
    if (!q->last)
        q->last = r;
}

/* The oldest request of a handle, which stays where it is. */
static struct p3s_request *find(uint64_t handle)
{
    struct queue *q = bucket ? *place_of(handle) : NULL;
    return q ? q->first : NULL;
}

static struct p3s_request *take(uint64_t handle)
{
    struct queue **at = bucket ? place_of(handle) : NULL, *q = at ? *at : NULL;
    struct p3s_request *r = q ? q->first : NULL;
    if (!r)
        return NULL;
    q->first = r->next;
    q->length--;
    if (!q->first) {
        *at = q->next;
        q->next = spare_queue;
        spare_queue = q;
        __atomic_store_n(&used, used - 1, __ATOMIC_RELAXED);
    }
    return r;
}

static struct p3s_request *add(uint64_t handle)
{
    struct queue *q = queue_for(handle);
    struct p3s_request *r = !q ? NULL : spare ? spare : malloc(sizeof *r);
    if (!r)
        return NULL;
    if (r == spare)
        spare = r->next;
    memset(r, 0, offsetof(struct p3s_request, call));
    r->handle = handle;
    if (q->last)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
    if (++q->length > LONGEST_QUEUE)
        release(take(handle));  /* a program that never completes them */
    return r;
}

static bool any_tracked(void)
{
    return __atomic_load_n(&used, __ATOMIC_RELAXED) != 0;
}

/* ---- posting ----------------------------------------------------------------------------------- */

/* The event written last has made this request. Needs p3s_lock. */
static void posted(uint64_t handle, struct p3s_comm *comm, bool wildcard)
{
    struct p3s_request *r = handle == P3S_HANDLE(p3s_mpi.request_null) ? NULL : add(handle);
    if (!r)
        return;
    r->ordinal = p3s_self.last_event;
    r->active = true;
    r->wildcard = wildcard;
    if (wildcard && comm) {
        r->comm = comm;
        comm->refs++;
    }
}

void p3s_posted(uint64_t request)
{
    p3s_hold();
    posted(request, NULL, false);
    p3s_let_go();
}

/* Tells whether a request that the program frees was cancelled: nothing else will tell it. */
static bool was_cancelled(MPI_Request request)
{
    MPI_Status status;
    int done = 0, cancelled = 0;
    return PMPI_Request_get_status(request, &done, &status) == MPI_SUCCESS && done
        && PMPI_Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled;
}

void p3s_request_free(MPI_Request request, bool nested)
{
    uint64_t handle = P3S_HANDLE(request);
    if (!p3s_active || !any_tracked())
        return;
    p3s_hold();
    /* Inside another call the library frees its own, which may share a handle; but a persistent
     * request has one of its own, and programs free those in delete callbacks. */
    struct p3s_request *r = find(handle);
    r = r && (!nested || r->persistent) ? take(handle) : NULL;
    p3s_let_go();
    if (!r)
        return;
    bool nothing = r->active && r->cancelling && was_cancelled(request);
    p3s_hold();
    if (nothing)
        p3s_put_done(r->ordinal, r->ordinal, true);
    release(r);
    p3s_let_go();
}

void p3s_cancel(uint64_t request)
{
    if (!p3s_active || !any_tracked())
        return;
    p3s_hold();
    struct p3s_request *r = find(request);
    if (r)
        r->cancelling = true;
    p3s_let_go();
}

void p3s_irecv(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
               MPI_Datatype type, uint64_t request)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    p3s_described(h, h->op, site, c, source, tag, count, type);
    posted(request, c, p3s_wild(source, tag));
    p3s_let_go();
}

void p3s_persistent(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int root,
                    int64_t count, MPI_Datatype type, uint64_t request)
{
    p3s_hold();
    struct p3s_comm *c = p3s_known(comm);
    struct p3s_request *r = add(request);
    if (r) {
        r->persistent = true;
        r->call = p3s_call_of(h->op, 0, c ? c->id : P3S_NONE, P3S_NONE, tag);
        if (peer != P3S_NO_RANK) {
            r->call.peer = p3s_world_of(c, peer);
            r->wildcard = p3s_wild(peer, tag) && r->call.op == P3S_OP_Recv_init;
        }
        if (root != P3S_NO_RANK)
            r->call.root = p3s_world_of(c, root);
        p3s_set_bytes(&r->call, count, type);
        r->call.numbers = h->numbers;
        r->call.memory = h->memory;
        r->comm = c;
        if (c)
            c->refs++;
    }
    p3s_let_go();
}

void p3s_partitioned(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int partitions,
                     int64_t count, MPI_Datatype type, uint64_t request)
{
    p3s_persistent(h, comm, peer, tag, P3S_NO_RANK, partitions * count, type, request);
    p3s_hold();
    struct p3s_request *r = find(request);
    if (r && r->persistent && partitions > 0) {
        r->place = new_place();
        r->partitions = partitions;
        r->part_bytes = r->call.bytes / partitions;
        r->part_count = r->call.count / partitions;
        r->call.numbers = p3s_numbers((int64_t[2]){partitions, r->place}, 2);
    }
    p3s_let_go();
}

/* The list of an MPI_Pready: the request's number and the partitions. */
static uint32_t ready_list(struct p3s_request *r, int n, int first, const int *list)
{
    int64_t small[16], *values = n < 16 ? small : malloc(sizeof *values * (size_t)(n + 1));
    if (!values)
        return 0;
    values[0] = r->place;
    for (int i = 0; i < n; i++)
        values[i + 1] = list ? list[i] : first + i;
    uint32_t number = p3s_numbers(values, n + 1);
    if (values != small)
        free(values);
    return number;
}

/* Numbers of one partition are asked for again and again. */
static uint32_t ready_one(struct p3s_request *r, int partition)
{
    if (partition < 0 || partition >= r->partitions)
        return 0;
    if (!r->ready)
        r->ready = calloc((size_t)r->partitions, sizeof *r->ready);
    if (!r->ready)
        return 0;
    if (!r->ready[partition])
        r->ready[partition] = ready_list(r, 1, partition, NULL);
    return r->ready[partition];
}

void p3s_ready(struct p3s_here *h, uint64_t request, int n, int first, const int *list)
{
    uint32_t site = p3s_site();
    p3s_hold();
    struct p3s_request *r = find(request);
    struct p3s_call call;
    if (r && r->partitions && n >= 0) {
        call = r->call;
        call.op = h->op;
        call.site = site;
        call.depth = p3s_self.site_depth;
        call.thread = p3s_self.number;
        call.team = p3s_call_team();
        call.bytes = r->part_bytes * n;
        call.count = r->part_count * n;
        call.numbers = n == 1 ? ready_one(r, list ? *list : first) : ready_list(r, n, first, list);
    } else {
        call = p3s_call_of(h->op, site, P3S_NONE, P3S_NONE, P3S_NONE);
    }
    p3s_put(h, &call);
    p3s_let_go();
}

void p3s_start(struct p3s_here *h, int n, const MPI_Request *started)
{
    uint32_t site = p3s_site();
    p3s_hold();
    for (int i = 0; i < n; i++) {
        struct p3s_request *r = find(P3S_HANDLE(started[i]));
        struct p3s_call call = r ? r->call
                                 : p3s_call_of(h->op, site, P3S_NONE, P3S_NONE, P3S_NONE);
        call.site = site;
        call.depth = p3s_self.site_depth;
        call.thread = p3s_self.number;
        uint64_t ordinal = p3s_put(h, &call);
        if (r) {
            r->ordinal = ordinal;
            r->active = true;
        }
    }
    p3s_let_go();
}

/* ---- completion -------------------------------------------------------------------------------- */

MPI_Status *p3s_wait_begin(struct p3s_wait *w, int n, const MPI_Request *handles,
                           MPI_Status *user, bool ignored)
{
    bool want_status = false;
    w->n = n;
    w->nonnull = 0;
    w->tracked = w->own_statuses = false;
    w->given = !ignored;
    for (int i = 0; i < n; i++)
        w->nonnull += handles[i] != p3s_mpi.request_null;
    if (n <= 0 || !any_tracked())
        return user;
    w->requests = n <= P3S_SMALL ? w->small_requests : malloc(sizeof *w->requests * (size_t)n);
    if (!w->requests) {
        p3s_hold();
        p3s_stop("no memory for the trace", ENOMEM);
        p3s_let_go();
        return user;
    }
    w->tracked = true;
    p3s_hold();
    for (int i = 0; i < n; i++) {
        struct p3s_request *r = w->requests[i] =
            handles[i] == p3s_mpi.request_null ? NULL : take(P3S_HANDLE(handles[i]));
        if (!r)
            continue;
        if (r->active)
            want_status |= r->wildcard || r->cancelling;
        else
            w->nonnull--;       /* an inactive persistent request completes nothing */
    }
    p3s_let_go();
    if (!want_status || !ignored)
        return user;
    w->statuses = n <= P3S_SMALL ? w->small_statuses : malloc(sizeof(MPI_Status) * (size_t)n);
    w->given = w->own_statuses = w->statuses != NULL;
    return w->own_statuses ? w->statuses : user;
}

void p3s_resolve(struct p3s_wait *w, int index, const MPI_Status *status)
{
    int cancelled = 0;
    if (!w->tracked || index < 0 || index >= w->n || !w->requests[index])
        return;
    p3s_hold();
    struct p3s_request *r = w->requests[index];
    if (r->active) {
        if (w->given && (r->wildcard || r->cancelling) &&
            PMPI_Test_cancelled(status, &cancelled) != MPI_SUCCESS)
            cancelled = 0;
        if (w->given && r->wildcard && !cancelled)
            p3s_resolved(r->comm, r->ordinal, status);
        p3s_put_done(p3s_self.last_event, r->ordinal, cancelled != 0);
        r->active = r->cancelling = false;
    }
    p3s_let_go();
}

void p3s_wait_end(struct p3s_wait *w, int rc, const MPI_Request *handles)
{
    if (!w->tracked)
        return;
    p3s_hold();
    for (int i = w->n - 1; i >= 0; i--) { /* backwards: what is put back keeps its order */
        struct p3s_request *r = w->requests[i];
        if (!r)
            continue;
        /* Some may have completed with an error: what is null now must not be remembered. */
        bool gone = rc != MPI_SUCCESS && handles[i] == p3s_mpi.request_null;
        if (r->persistent || (r->active && !gone))
            put_back(r);
        else
            release(r);
    }
    p3s_let_go();
    if (w->requests != w->small_requests)
        free(w->requests);
    if (w->own_statuses && w->statuses != w->small_statuses)
        free(w->statuses);
}
