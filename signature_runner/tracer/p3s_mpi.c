/* What the wrappers say, turned into records: communicators in world ranks, datatypes in bytes,
 * requests whose partner is known only at completion. Uses local MPI calls only. */
#include "p3s_tracer.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct p3s_comm {
    int id, size, me, refs;
    bool inter;
    int *world;                 /* world rank of each peer (of the remote group if inter) */
};

struct p3s_request {
    struct p3s_comm *comm;      /* where a wildcard's source is translated */
    bool wildcard, persistent, active;
    uint64_t ordinal;
    struct p3s_call call;
};

__thread struct p3s_thread p3s_self __attribute__((tls_model("initial-exec")));
pthread_mutex_t p3s_lock = PTHREAD_MUTEX_INITIALIZER;
volatile int p3s_active;
int64_t p3s_epoch_ns;
struct p3s_real p3s_real;
struct p3s_handles p3s_mpi;

static bool resolved_mpi;
static struct p3s_map comms, types, requests, messages;
static int next_comm_id;
static uint32_t next_thread;
static int my_world_rank;
static MPI_Group world_group;
static pthread_key_t thread_key;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- finding the MPI library of the program -------------------------------------------------- */

static void *caller_library(void *ra)
{
    /* In a Python process libmpi is not in the global scope: ask the calling module, whose
     * dependencies include it. */
    Dl_info info;
    void *found = NULL;
    if (dladdr(ra, &info) && info.dli_fname && strchr(info.dli_fname, '/'))
        found = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (found && dlsym(found, "PMPI_Init"))
        return found;
    return RTLD_DEFAULT;
}

static bool find_mpi(void *ra, char *path, size_t path_bytes)
{
    void *library = caller_library(ra), *init = dlsym(library, "PMPI_Init");
    Dl_info info;
    for (int i = 0; p3s_real_names[i].name; i++)
        *(void **)((char *)&p3s_real + p3s_real_names[i].offset) =
            dlsym(library, p3s_real_names[i].name);
    snprintf(path, path_bytes, "%s", init && dladdr(init, &info) ? info.dli_fname : "?");
    resolved_mpi = init != NULL;
    void *openmpi = dlsym(library, "ompi_mpi_comm_world");
#ifdef OPEN_MPI
    p3s_mpi.comm_world = (MPI_Comm)openmpi;
    p3s_mpi.comm_self = (MPI_Comm)dlsym(library, "ompi_mpi_comm_self");
    p3s_mpi.comm_null = (MPI_Comm)dlsym(library, "ompi_mpi_comm_null");
    p3s_mpi.request_null = (MPI_Request)dlsym(library, "ompi_request_null");
    p3s_mpi.type_null = (MPI_Datatype)dlsym(library, "ompi_mpi_datatype_null");
    p3s_mpi.byte = (MPI_Datatype)dlsym(library, "ompi_mpi_byte");
    p3s_mpi.message_no_proc = (MPI_Message)dlsym(library, "ompi_message_no_proc");
    return init && openmpi;
#else
    p3s_mpi = (struct p3s_handles){MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL,
        MPI_REQUEST_NULL, MPI_DATATYPE_NULL, MPI_BYTE, MPI_MESSAGE_NO_PROC};
    const char *base = strrchr(path, '/');
    return init && !openmpi && !strstr(base ? base : path, "mpi_abi");
#endif
}

static void thread_end(void *cache) { p3s_site_thread_end(cache); }

/* ---- entering and leaving ---------------------------------------------------------------------- */

bool p3s_init_enter(struct p3s_here *h, void *ra, void *fa, int *rc)
{
    char path[1024];
    bool right = find_mpi(ra, path, sizeof path);
    const char *directory = getenv("P3S_TRACE_DIR");
    *h = (struct p3s_here){.ra = ra, .fa = fa, .op = P3S_OP_Init};
    h->work_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    h->t0_ns = clock_ns(CLOCK_MONOTONIC);
    if (right)
        return true;
    /* Handles of another family do not fit the wrappers: refuse before anything breaks. */
    if (directory) {
        char marker[4096];
        snprintf(marker, sizeof marker, "%s/other-mpi", directory);
        int fd = open(marker, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (fd >= 0) {
            if (write(fd, path, strlen(path)) < 0) {
                /* The message below says it too. */
            }
            close(fd);
            fprintf(stderr, "p3s: the program uses the MPI library %s, the tracer was built for "
                    "another MPI; MPI_Init fails\n", path);
        }
    }
    *rc = MPI_ERR_OTHER;
    return false;
}

void p3s_init_done(struct p3s_here *h, int rc)
{
    const char *directory = getenv("P3S_TRACE_DIR");
    int rank = 0, size = 0;
    h->t1_ns = clock_ns(CLOCK_MONOTONIC);
    if (rc == MPI_SUCCESS && directory && *directory && !p3s_header &&
        PMPI_Comm_rank(p3s_mpi.comm_world, &rank) == MPI_SUCCESS &&
        PMPI_Comm_size(p3s_mpi.comm_world, &size) == MPI_SUCCESS &&
        PMPI_Comm_group(p3s_mpi.comm_world, &world_group) == MPI_SUCCESS &&
        p3s_store_open(directory, rank, size, h->t1_ns)) {
        my_world_rank = rank;
        p3s_epoch_ns = h->t1_ns;
        pthread_key_create(&thread_key, thread_end);
        p3s_self.number = __atomic_fetch_add(&next_thread, 1, __ATOMIC_RELAXED);
        p3s_active = 1;
        p3s_plain(h, p3s_mpi.comm_world);
    }
    p3s_self.cpu_at_return_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void p3s_late(void *ra)
{
    char path[1024];
    find_mpi(ra, path, sizeof path);
}

bool p3s_enter(struct p3s_here *h, uint32_t op, void *ra, void *fa)
{
    struct p3s_thread *t = &p3s_self;
    if (!resolved_mpi)
        p3s_late(ra);
    if (!p3s_active || t->depth)
        return false;
    if (!t->sites && !t->number && !t->cpu_at_return_ns)
        t->number = __atomic_fetch_add(&next_thread, 1, __ATOMIC_RELAXED);
    t->depth = 1;
    h->ra = ra;
    h->fa = fa;
    h->op = op;
    h->recorded = false;
    h->work_ns = t->carried_work_ns + clock_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_at_return_ns;
    p3s_header->in_call = op + 1;
    h->t1_ns = h->t0_ns = clock_ns(CLOCK_MONOTONIC);
    return true;
}

void p3s_return(struct p3s_here *h)
{
    h->t1_ns = clock_ns(CLOCK_MONOTONIC);
}

void p3s_leave(struct p3s_here *h)
{
    struct p3s_thread *t = &p3s_self;
    if (p3s_header)
        p3s_header->in_call = 0;
    t->carried_work_ns = h->recorded ? 0 : h->work_ns;
    if (t->sites && !pthread_getspecific(thread_key))
        pthread_setspecific(thread_key, t->sites);
    t->depth = 0;
    t->cpu_at_return_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void p3s_finalize(struct p3s_here *h)
{
    p3s_plain(h, p3s_mpi.comm_world);
    p3s_active = 0;
    PMPI_Group_free(&world_group);
    p3s_store_close();
}

void p3s_aborting(void) { p3s_header->flags |= 2; }

/* ---- communicators ------------------------------------------------------------------------------ */

static void translate(MPI_Group group, int n, int *world)
{
    int *own = calloc((size_t)n + 1, sizeof(int));
    for (int i = 0; i < n && own; i++)
        own[i] = i;
    if (!own || PMPI_Group_translate_ranks(group, n, own, world_group, world) != MPI_SUCCESS)
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
    p3s_append(P3S_REC_COMM, head, sizeof head, tail, sizeof(int32_t) * ints + name_bytes);
    free(tail);
}

/* The record of a communicator, made at its first use. Needs p3s_lock. */
static struct p3s_comm *comm_of(MPI_Comm comm, const char *op, int parent)
{
    struct p3s_comm *c = p3s_map_get(&comms, P3S_HANDLE(comm));
    MPI_Group group;
    int inter = 0, size = 0, remote = 0, *members;
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &c->me);
    if (inter)
        PMPI_Comm_remote_size(comm, &remote);
    members = malloc(sizeof(int) * (size_t)(size + remote + 1));
    PMPI_Comm_group(comm, &group);
    translate(group, size, members);
    PMPI_Group_free(&group);
    c->inter = inter;
    c->id = next_comm_id++;
    c->size = inter ? remote : size;
    c->world = malloc(sizeof(int) * (size_t)(c->size + 1));
    if (inter) {
        PMPI_Comm_remote_group(comm, &group);
        translate(group, remote, c->world);
        PMPI_Group_free(&group);
        /* Both sides describe the same set, so that they merge to one communicator. */
        memcpy(members + size, c->world, sizeof(int) * (size_t)remote);
        qsort(members, (size_t)(size + remote), sizeof(int), ascending);
    } else {
        memcpy(c->world, members, sizeof(int) * (size_t)size);
    }
    c->refs = 1;
    if (!op)
        op = comm == p3s_mpi.comm_world ? "MPI_COMM_WORLD"
             : comm == p3s_mpi.comm_self ? "MPI_COMM_SELF" : "unknown";
    write_comm(c, comm, parent, op, members, size + remote);
    free(members);
    p3s_map_put(&comms, P3S_HANDLE(comm), c);
    return c;
}

static struct p3s_comm *known(MPI_Comm comm)
{
    return comm_of(comm, NULL, P3S_NONE);
}

static void release(struct p3s_comm *c)
{
    if (c && --c->refs == 0) {
        free(c->world);
        free(c);
    }
}

static int world_of(const struct p3s_comm *c, int rank)
{
    if (rank == MPI_PROC_NULL)
        return P3S_PROC_NULL;
    if (rank == MPI_ANY_SOURCE)
        return P3S_ANY;
    return c && rank >= 0 && rank < c->size ? c->world[rank] : P3S_NONE;
}

int p3s_fan(MPI_Comm comm)
{
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    int size = c ? c->size : 0;
    pthread_mutex_unlock(&p3s_lock);
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
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    int me = c ? c->me : 0;
    pthread_mutex_unlock(&p3s_lock);
    return me;
}

/* ---- datatypes ----------------------------------------------------------------------------------- */

int64_t p3s_type_bytes(MPI_Datatype type)
{
    MPI_Count size = 0;
    if (type == p3s_mpi.type_null || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    return size;
}

#ifdef P3S_HAVE_Type_get_envelope_c
typedef MPI_Count envelope_count;
#define ENVELOPE(t, i, a, d, c, combiner)                                                        \
    (c = 0, PMPI_Type_get_envelope_c(t, &i, &a, &c, &d, &combiner))
#define CONTENTS(t, i, a, c, d, ip, ap, cp, dp)                                                  \
    PMPI_Type_get_contents_c(t, i, a, c, d, ip, ap, cp, dp)
#else
typedef int envelope_count;
#define ENVELOPE(t, i, a, d, c, combiner)                                                        \
    (c = 0, PMPI_Type_get_envelope(t, &i, &a, &d, &combiner))
#define CONTENTS(t, i, a, c, d, ip, ap, cp, dp) PMPI_Type_get_contents(t, i, a, d, ip, ap, dp)
#endif

/* Bytes of the one kind of basic element a datatype is made of: 0 nothing, -1 several kinds. */
static int element_of(MPI_Datatype type, int depth)
{
    envelope_count ints, addresses, counts, inner;
    int combiner, element = 0;
    if (ENVELOPE(type, ints, addresses, inner, counts, combiner) != MPI_SUCCESS)
        return -1;
    if (combiner == MPI_COMBINER_NAMED || inner == 0 || depth > 64)
        return (int)p3s_type_bytes(type);
    int *ip = malloc(sizeof(int) * (size_t)(ints + 1));
    MPI_Aint *ap = malloc(sizeof(MPI_Aint) * (size_t)(addresses + 1));
    MPI_Count *cp = malloc(sizeof(MPI_Count) * (size_t)(counts + 1));
    MPI_Datatype *dp = malloc(sizeof(MPI_Datatype) * (size_t)(inner + 1));
    if (!ip || !ap || !cp || !dp ||
        CONTENTS(type, ints, addresses, counts, inner, ip, ap, cp, dp) != MPI_SUCCESS) {
        element = -1;
        inner = 0;
    }
    for (envelope_count i = 0; i < inner; i++) {
        int one = element_of(dp[i], depth + 1);
        if (one != 0)
            element = element == 0 || element == one ? one : -1;
        int ni, na, nd, kind;
        /* Derived types come out as new references; predefined ones must not be freed. */
#ifdef P3S_HAVE_Type_get_envelope_c
        MPI_Count li, la, lc, ld;
        bool asked = PMPI_Type_get_envelope_c(dp[i], &li, &la, &lc, &ld, &kind) == MPI_SUCCESS;
        (void)ni, (void)na, (void)nd;
#else
        bool asked = PMPI_Type_get_envelope(dp[i], &ni, &na, &nd, &kind) == MPI_SUCCESS;
#endif
        if (asked && kind != MPI_COMBINER_NAMED && kind != MPI_COMBINER_F90_REAL &&
            kind != MPI_COMBINER_F90_INTEGER && kind != MPI_COMBINER_F90_COMPLEX)
            PMPI_Type_free(&dp[i]);
    }
    free(ip);
    free(ap);
    free(cp);
    free(dp);
    return element;
}

/* Needs p3s_lock. The size is part of what is remembered: a handle used again for another type
 * after a free that was not seen is asked again. */
static uint16_t element_bytes(MPI_Datatype type, int64_t size)
{
    if (type == p3s_mpi.type_null || size <= 0)
        return 1;
    uintptr_t seen = (uintptr_t)p3s_map_get(&types, P3S_HANDLE(type));
    if (seen && (int64_t)(seen >> 16) == (size & 0xffffffffffff))
        return (uint16_t)seen;
    int element = element_of(type, 0);
    if (element < 1 || element > 65535)
        element = 1;
    p3s_map_put(&types, P3S_HANDLE(type), (void *)((uintptr_t)size << 16 | (uintptr_t)element));
    return (uint16_t)element;
}

void p3s_type_free(MPI_Datatype type)
{
    if (!p3s_active || (p3s_self.depth && pthread_mutex_trylock(&p3s_lock) != 0))
        return;
    if (!p3s_self.depth)
        pthread_mutex_lock(&p3s_lock);
    p3s_map_take(&types, P3S_HANDLE(type));
    pthread_mutex_unlock(&p3s_lock);
}

/* ---- events --------------------------------------------------------------------------------------- */

static struct p3s_call call_of(uint32_t op, uint32_t site, int comm, int peer, int tag)
{
    struct p3s_call call = {.op = (uint16_t)op, .elem_bytes = 1, .site = site, .comm = comm,
                            .peer = peer, .tag = tag == MPI_ANY_TAG ? P3S_NONE : tag,
                            .root = P3S_NONE};
    return call;
}

static void set_bytes(struct p3s_call *call, int64_t count, MPI_Datatype type)
{
    int64_t size = p3s_type_bytes(type);
    call->bytes = count * size;
    call->elem_bytes = element_bytes(type, size);
}

/* Needs p3s_lock. The first event of a call carries its times, a second one carries none. */
static uint64_t put(struct p3s_here *h, const struct p3s_call *call)
{
    bool first = !h->recorded;
    h->recorded = true;
    return p3s_put_event(call, h->t0_ns - p3s_epoch_ns, first ? h->t1_ns - h->t0_ns : 0,
                         first ? h->work_ns : 0, p3s_self.number);
}

static void simple(struct p3s_here *h, int comm, int64_t bytes)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_call call = call_of(h->op, site, comm, P3S_NONE, P3S_NONE);
    call.bytes = bytes;
    call.tag = P3S_NONE;
    put(h, &call);
    pthread_mutex_unlock(&p3s_lock);
}

static int id_of(MPI_Comm comm)
{
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    int id = c ? c->id : P3S_NONE;
    pthread_mutex_unlock(&p3s_lock);
    return id;
}

void p3s_plain(struct p3s_here *h, MPI_Comm comm) { simple(h, id_of(comm), 0); }

void p3s_nowhere(struct p3s_here *h) { simple(h, P3S_NONE, 0); }

void p3s_completed(struct p3s_here *h, int count) { simple(h, P3S_NONE, count); }

void p3s_comm_freed(struct p3s_here *h, int id) { simple(h, id, 0); }

void p3s_poll(struct p3s_here *h)
{
    __atomic_fetch_add(&p3s_header->failed_polls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&p3s_header->failed_poll_ns, h->t1_ns - h->t0_ns, __ATOMIC_RELAXED);
}

static void resolved(const struct p3s_comm *c, uint64_t ordinal, const MPI_Status *status)
{
    MPI_Count bytes = 0;
    if (PMPI_Get_elements_x(status, p3s_mpi.byte, &bytes) != MPI_SUCCESS || bytes < 0)
        bytes = 0;
    p3s_put_resolved(ordinal, world_of(c, status->MPI_SOURCE), status->MPI_TAG, bytes);
}

static bool wild(int source, int tag)
{
    return source != MPI_PROC_NULL && (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG);
}

MPI_Status *p3s_status(MPI_Status *user, MPI_Status *own, int source, int tag)
{
    return user == MPI_STATUS_IGNORE && wild(source, tag) ? own : user;
}

MPI_Status *p3s_any_status(MPI_Status *user, MPI_Status *own)
{
    return user == MPI_STATUS_IGNORE ? own : user;
}

/* Needs p3s_lock. */
static uint64_t message(struct p3s_here *h, uint32_t op, uint32_t site, const struct p3s_comm *c,
                        int peer, int tag, int64_t count, MPI_Datatype type)
{
    struct p3s_call call = call_of(op, site, c ? c->id : P3S_NONE, world_of(c, peer), tag);
    set_bytes(&call, count, type);
    return put(h, &call);
}

void p3s_p2p(struct p3s_here *h, MPI_Comm comm, int peer, int tag, int64_t count,
             MPI_Datatype type)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    message(h, h->op, site, known(comm), peer, tag, count, type);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_recv(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
              MPI_Datatype type, const MPI_Status *status)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    uint64_t ordinal = message(h, h->op, site, c, source, tag, count, type);
    if (wild(source, tag))
        resolved(c, ordinal, status);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_sendrecv(struct p3s_here *h, MPI_Comm comm, int dest, int sendtag, int64_t sendcount,
                  MPI_Datatype sendtype, int source, int recvtag, int64_t recvcount,
                  MPI_Datatype recvtype, const MPI_Status *status)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    message(h, h->op, site, c, dest, sendtag, sendcount, sendtype);
    uint64_t ordinal = message(h, P3S_OP_Sendrecv_recv, site, c, source, recvtag, recvcount,
                               recvtype);
    if (wild(source, recvtag))
        resolved(c, ordinal, status);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_probe(struct p3s_here *h, MPI_Comm comm, int source, int tag, const MPI_Status *status)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    struct p3s_call call = call_of(h->op, site, c ? c->id : P3S_NONE, world_of(c, source), tag);
    call.bytes = 1;             /* one message found */
    uint64_t ordinal = put(h, &call);
    if (wild(source, tag))
        resolved(c, ordinal, status);
    pthread_mutex_unlock(&p3s_lock);
}

/* ---- matched messages ------------------------------------------------------------------------------- */

void p3s_message_put(uint64_t handle, MPI_Comm comm, const MPI_Status *status)
{
    struct p3s_message *m = malloc(sizeof *m);
    if (!m)
        return;
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    *m = (struct p3s_message){c ? c->id : P3S_NONE, world_of(c, status->MPI_SOURCE),
                              status->MPI_TAG};
    free(p3s_map_put(&messages, handle, m));
    pthread_mutex_unlock(&p3s_lock);
}

struct p3s_message p3s_message_take(uint64_t handle)
{
    struct p3s_message m = {P3S_NONE, P3S_ANY, P3S_NONE};
    if (handle == P3S_HANDLE(p3s_mpi.message_no_proc))
        m.peer = P3S_PROC_NULL;
    pthread_mutex_lock(&p3s_lock);
    struct p3s_message *found = p3s_map_take(&messages, handle);
    pthread_mutex_unlock(&p3s_lock);
    if (found)
        m = *found;
    free(found);
    return m;
}

void p3s_mrecv(struct p3s_here *h, const struct p3s_message *m, int64_t count, MPI_Datatype type)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_call call = call_of(h->op, site, m->comm, m->peer, m->tag);
    call.tag = m->tag;
    set_bytes(&call, count, type);
    put(h, &call);
    pthread_mutex_unlock(&p3s_lock);
}

/* ---- requests ----------------------------------------------------------------------------------------- */

static void forget(uint64_t handle)
{
    struct p3s_request *r = p3s_map_take(&requests, handle);
    if (r)
        release(r->comm);
    free(r);
}

static void remember(uint64_t handle, const struct p3s_request *like)
{
    struct p3s_request *r = malloc(sizeof *r);
    forget(handle);
    if (!r)
        return;
    *r = *like;
    if (r->comm)
        r->comm->refs++;
    if (p3s_map_put(&requests, handle, r) == r) {
        release(r->comm);
        free(r);
    }
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
    struct p3s_comm *c = known(comm);
    uint64_t ordinal = message(h, h->op, site, c, source, tag, count, type);
    if (wild(source, tag)) {
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
    struct p3s_comm *c = known(comm);
    struct p3s_request r = {.comm = c, .persistent = true};
    r.call = call_of(h->op, 0, c ? c->id : P3S_NONE, P3S_NONE, tag);
    if (peer != P3S_NO_RANK) {
        r.call.peer = world_of(c, peer);
        r.wildcard = wild(peer, tag) && r.call.op == P3S_OP_Recv_init;
    }
    if (root != P3S_NO_RANK)
        r.call.root = world_of(c, root);
    set_bytes(&r.call, count, type);
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
                                 : call_of(h->op, site, P3S_NONE, P3S_NONE, P3S_NONE);
        call.site = site;
        uint64_t ordinal = put(h, &call);
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
    w->requests = n <= P3S_SMALL ? w->small_requests : malloc(sizeof(MPI_Request) * (size_t)n);
    if (!w->requests)
        return user;
    memcpy(w->requests, handles, sizeof(MPI_Request) * (size_t)n);
    w->tracked = true;
    pthread_mutex_lock(&p3s_lock);
    for (int i = 0; i < n; i++) {
        struct p3s_request *r = p3s_map_get(&requests, P3S_HANDLE(handles[i]));
        if (!r)
            continue;
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

void p3s_resolve(struct p3s_wait *w, int index, const MPI_Status *status)
{
    int cancelled = 0;
    if (!w->tracked || index < 0 || index >= w->n)
        return;
    pthread_mutex_lock(&p3s_lock);
    uint64_t handle = P3S_HANDLE(w->requests[index]);
    struct p3s_request *r = p3s_map_get(&requests, handle);
    if (r && r->active) {
        r->active = false;
        if (r->wildcard && status != MPI_STATUS_IGNORE && status != MPI_STATUSES_IGNORE &&
            PMPI_Test_cancelled(status, &cancelled) == MPI_SUCCESS && !cancelled)
            resolved(r->comm, r->ordinal, status);
        if (!r->persistent)
            forget(handle);
    }
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_wait_end(struct p3s_wait *w, int rc, const MPI_Request *handles)
{
    if (!w->tracked)
        return;
    if (rc != MPI_SUCCESS) {
        /* Some may have completed with the error: what is null now must not be remembered. */
        pthread_mutex_lock(&p3s_lock);
        for (int i = 0; i < w->n; i++)
            if (handles[i] == p3s_mpi.request_null && w->requests[i] != p3s_mpi.request_null)
                forget(P3S_HANDLE(w->requests[i]));
        pthread_mutex_unlock(&p3s_lock);
    }
    if (w->requests != w->small_requests)
        free(w->requests);
    if (w->own_statuses && w->statuses != w->small_statuses)
        free(w->statuses);
}

/* ---- collectives and communicator construction ----------------------------------------------------------- */

static void collective(struct p3s_here *h, MPI_Comm comm, int root, int64_t count,
                       MPI_Datatype type, int64_t bytes)
{
    uint32_t site = p3s_site(h->ra, h->fa);
    pthread_mutex_lock(&p3s_lock);
    struct p3s_comm *c = known(comm);
    struct p3s_call call = call_of(h->op, site, c ? c->id : P3S_NONE, P3S_NONE, P3S_NONE);
    call.tag = P3S_NONE;
    set_bytes(&call, count, type);
    if (bytes >= 0)
        call.bytes = bytes;
    if (root != P3S_NO_RANK)
        call.root = root == MPI_ROOT ? my_world_rank : world_of(c, root);
    put(h, &call);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_coll(struct p3s_here *h, MPI_Comm comm, int root, int64_t count, MPI_Datatype type)
{
    collective(h, comm, root, count, type, -1);
}

void p3s_coll_bytes(struct p3s_here *h, MPI_Comm comm, int64_t bytes, MPI_Datatype type)
{
    collective(h, comm, P3S_NO_RANK, 0, type, bytes);
}

void p3s_comm_made(struct p3s_here *h, MPI_Comm parent, MPI_Comm made)
{
    int id = id_of(parent);
    simple(h, id, 0);
    if (made == p3s_mpi.comm_null)
        return;
    pthread_mutex_lock(&p3s_lock);
    release(p3s_map_take(&comms, P3S_HANDLE(made)));
    comm_of(made, p3s_op_names[h->op], id);
    pthread_mutex_unlock(&p3s_lock);
}

int p3s_comm_forget(MPI_Comm comm)
{
    int id = comm == p3s_mpi.comm_null ? P3S_NONE : id_of(comm);
    pthread_mutex_lock(&p3s_lock);
    release(p3s_map_take(&comms, P3S_HANDLE(comm)));
    pthread_mutex_unlock(&p3s_lock);
    return id;
}
