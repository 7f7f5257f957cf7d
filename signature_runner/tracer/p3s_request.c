/* Requests whose partner is known only at completion (wildcard receives) and persistent ones.
 * All other requests leave no trace here: their partner was known when they were posted. */
#include "p3s_inside.h"

#include <stdlib.h>
#include <string.h>

struct p3s_request {
    struct p3s_comm *comm;      /* where a wildcard's source is translated */
    bool wildcard, persistent, active;
    int refs;                   /* the table, and completion calls that are looking at it */
    uint64_t handle, ordinal;
    struct p3s_call call;
};

static struct p3s_map requests;

static void unref(struct p3s_request *r)
{
    if (r && --r->refs == 0) {
        p3s_release(r->comm);
        free(r);
    }
}

static void forget(uint64_t handle)
{
    unref(p3s_map_take(&requests, handle));
}

static void remember(uint64_t handle, const struct p3s_request *like)
{
    struct p3s_request *r = malloc(sizeof *r);
    forget(handle);
    if (!r)
        return;
    *r = *like;
    r->handle = handle;
    r->refs = 1;
    if (r->comm)
        r->comm->refs++;
    if (p3s_map_put(&requests, handle, r) == r)
        unref(r);
}

static bool any_tracked(void)
{
    return __atomic_load_n(&requests.used, __ATOMIC_RELAXED) != 0;
}

void p3s_posted(uint64_t request)
{
    if (!any_tracked())
        return;
    pthread_mutex_lock(&p3s_lock);
    forget(request);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_request_free(uint64_t request)
{
    if (p3s_active && !p3s_self.depth)
        p3s_posted(request);
}

void p3s_irecv(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
               MPI_Datatype type, uint64_t request)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = p3s_known(comm);
    uint64_t ordinal = p3s_described(h, h->op, site, c, source, tag, count, type);
    if (p3s_wild(source, tag)) {
        struct p3s_request r = {.comm = c, .wildcard = true, .active = true, .ordinal = ordinal};
        remember(request, &r);
    } else if (any_tracked()) {
        forget(request);
    }
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_persistent(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int root,
                    int64_t count, MPI_Datatype type, uint64_t request)
{
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = p3s_known(comm);
    struct p3s_request r = {.comm = c, .persistent = true};
    r.call = p3s_call_of(h->op, 0, c ? c->id : P3S_NONE, P3S_NONE, tag);
    if (peer != P3S_NO_RANK) {
        r.call.peer = p3s_world_of(c, peer);
        r.wildcard = p3s_wild(peer, tag) && r.call.op == P3S_OP_Recv_init;
    }
    if (root != P3S_NO_RANK)
        r.call.root = p3s_world_of(c, root);
    p3s_set_bytes(&r.call, count, type);
    remember(request, &r);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_start(struct p3s_here *h, int n, const MPI_Request *started)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    for (int i = 0; i < n; i++) {
        struct p3s_request *r = p3s_map_get(&requests, P3S_HANDLE(started[i]));
        struct p3s_call call = r ? r->call
                                 : p3s_call_of(h->op, site, P3S_NONE, P3S_NONE, P3S_NONE);
        call.site = site;
        uint64_t ordinal = p3s_put(h, &call);
        if (r) {
            r->ordinal = ordinal;
            r->active = true;
        }
    }
    pthread_mutex_unlock(&p3s_lock);
}

MPI_Status *p3s_wait_begin(struct p3s_wait *w, int n, const MPI_Request *handles,
                           MPI_Status *user, bool ignored)
{
    bool wildcard = false;
    w->n = n;
    w->nonnull = 0;
    w->tracked = w->own_statuses = false;
    for (int i = 0; i < n; i++)
        w->nonnull += handles[i] != p3s_mpi.request_null;
    if (n <= 0 || !any_tracked())
        return user;
    w->requests = n <= P3S_SMALL ? w->small_requests : malloc(sizeof *w->requests * (size_t)n);
    if (!w->requests)
        return user;
    w->tracked = true;
    pthread_mutex_lock(&p3s_lock);
    for (int i = 0; i < n; i++) {
        /* Held until the end: once it is complete, another thread may be given its handle. */
        struct p3s_request *r = w->requests[i] = p3s_map_get(&requests, P3S_HANDLE(handles[i]));
        if (!r)
            continue;
        r->refs++;
        if (r->active)
            wildcard |= r->wildcard;
        else
            w->nonnull--;       /* an inactive persistent request completes nothing */
    }
    pthread_mutex_unlock(&p3s_lock);
    if (!wildcard || !ignored)
        return user;
    w->statuses = n <= P3S_SMALL ? w->small_statuses : malloc(sizeof(MPI_Status) * (size_t)n);
    w->own_statuses = w->statuses != NULL;
    return w->own_statuses ? w->statuses : user;
}

static void completed(struct p3s_request *r)
{
    r->active = false;
    if (!r->persistent && p3s_map_get(&requests, r->handle) == r)
        forget(r->handle);
}

void p3s_resolve(struct p3s_wait *w, int index, const MPI_Status *status)
{
    int cancelled = 0;
    if (!w->tracked || index < 0 || index >= w->n || !w->requests[index])
        return;
    pthread_mutex_lock(&p3s_lock);
    struct p3s_request *r = w->requests[index];
    if (r->active) {
        if (r->wildcard && status != MPI_STATUS_IGNORE && status != MPI_STATUSES_IGNORE &&
            PMPI_Test_cancelled(status, &cancelled) == MPI_SUCCESS && !cancelled)
            p3s_resolved(r->comm, r->ordinal, status);
        completed(r);
    }
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_wait_end(struct p3s_wait *w, int rc, const MPI_Request *handles)
{
    if (!w->tracked)
        return;
    pthread_mutex_lock(&p3s_lock);
    for (int i = 0; i < w->n; i++) {
        /* Some may have completed with an error: what is null now must not be remembered. */
        if (w->requests[i] && rc != MPI_SUCCESS && handles[i] == p3s_mpi.request_null)
            completed(w->requests[i]);
        unref(w->requests[i]);
    }
    pthread_mutex_unlock(&p3s_lock);
    if (w->requests != w->small_requests)
        free(w->requests);
    if (w->own_statuses && w->statuses != w->small_statuses)
        free(w->statuses);
}
