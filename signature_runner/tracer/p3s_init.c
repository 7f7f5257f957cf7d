/* Finding the MPI library of the program, MPI_Init and MPI_Finalize, entering and leaving a
 * wrapper. */
#include "p3s_inside.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__thread struct p3s_thread p3s_self __attribute__((tls_model("initial-exec")));
pthread_mutex_t p3s_lock = PTHREAD_MUTEX_INITIALIZER;
volatile int p3s_active;
int64_t p3s_epoch_ns;
struct p3s_real p3s_real;
struct p3s_handles p3s_mpi;
MPI_Group p3s_world_group;
int p3s_world_rank;

static bool resolved_mpi;
static uint32_t next_thread;
static pthread_key_t thread_key;
static int64_t cpu_read_ns;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What two reads of the CPU clock, one right after the other, are apart: a system call. Between
 * two events lies one such read that is not the program's work. */
static int64_t cpu_read_cost(void)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 100; i++) {
        int64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        int64_t apart = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
        if (apart < least)
            least = apart;
    }
    return least;
}

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

/* ---- entering and leaving ------------------------------------------------------------------ */

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
    if (rc == MPI_SUCCESS && directory && *directory && !p3s_header && !p3s_spawned() &&
        PMPI_Comm_rank(p3s_mpi.comm_world, &rank) == MPI_SUCCESS &&
        PMPI_Comm_size(p3s_mpi.comm_world, &size) == MPI_SUCCESS &&
        PMPI_Comm_group(p3s_mpi.comm_world, &p3s_world_group) == MPI_SUCCESS &&
        p3s_store_open(directory, rank, size, h->t1_ns, cpu_read_ns = cpu_read_cost())) {
        p3s_world_rank = rank;
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
    int64_t work = clock_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_at_return_ns - cpu_read_ns;
    h->work_ns = t->carried_work_ns + (work > 0 ? work : 0);
    if (!p3s_op_known[op]) {
        /* Named before the call: if the rank dies inside, the file says where. */
        pthread_mutex_lock(&p3s_lock);
        p3s_put_op(op);
        pthread_mutex_unlock(&p3s_lock);
    }
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
    PMPI_Group_free(&p3s_world_group);
    p3s_store_close();
}

void p3s_aborting(int code)
{
    p3s_header->abort_code = code;
    p3s_header->flags |= 2;
}
