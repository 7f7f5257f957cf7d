/* A second, trivial count of MPI calls, to compare a tracer with. Preloaded alone or together
 * with another library; shares no code with it. At MPI_Finalize each rank writes
 * $COUNT_DIR/count-RANK.txt: lines "MPI_X CALLS BYTES".
 *
 * Both MPI_X and PMPI_X are defined, since the Fortran layers call PMPI_X; calls made inside
 * another MPI call are not counted, nor are calls that fail or polls that find nothing. A start
 * of persistent requests counts as many MPI_Start as there are requests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { const char *name; long calls, bytes; } rows[200];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int depth;

static void add(const char *name, long calls, long bytes)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (rows[i].name && strcmp(rows[i].name, name))
        i++;
    rows[i].name = name;
    rows[i].calls += calls;
    rows[i].bytes += bytes;
    pthread_mutex_unlock(&lock);
}

static long of(long n, MPI_Datatype type)
{
    int size = 0;
    PMPI_Type_size(type, &size);
    return n * size;
}

static int ranks(MPI_Comm comm)
{
    int size, inter;
    PMPI_Comm_test_inter(comm, &inter);
    inter ? PMPI_Comm_remote_size(comm, &size) : PMPI_Comm_size(comm, &size);
    return size;
}

static int rank_in(MPI_Comm comm)
{
    int rank;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

static long sum(const int *n, MPI_Comm comm)
{
    long total = 0;
    for (int i = 0; i < ranks(comm); i++)
        total += n[i];
    return total;
}

/* What a call does when it succeeded is one statement. */
#define WRAP(name, parameters, arguments, statement)                                              \
    static int do_##name parameters                                                               \
    {                                                                                             \
        static int (*real) parameters;                                                            \
        if (!real)                                                                                \
            *(void **)&real = dlsym(RTLD_NEXT, "PMPI_" #name);                                    \
        const char *me = "MPI_" #name;                                                            \
        depth++;                                                                                  \
        int rc = real arguments;                                                                  \
        if (depth == 1 && rc == MPI_SUCCESS) {                                                    \
            statement;                                                                            \
        }                                                                                         \
        (void)me;                                                                                 \
        depth--;                                                                                  \
        return rc;                                                                                \
    }                                                                                             \
    int MPI_##name parameters { return do_##name arguments; }                                     \
    int PMPI_##name parameters { return do_##name arguments; }

#define SEND(name)                                                                                \
    WRAP(name, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c),               \
         (b, n, t, to, tag, c), add(me, 1, of(n, t)))
#define ISEND(name)                                                                               \
    WRAP(name, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,                \
                MPI_Request *r), (b, n, t, to, tag, c, r), add(me, 1, of(n, t)))

SEND(Send) SEND(Ssend) SEND(Bsend) SEND(Rsend)
ISEND(Isend) ISEND(Issend) ISEND(Ibsend) ISEND(Irsend)
WRAP(Recv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s),
     (b, n, t, from, tag, c, s), add(me, 1, of(n, t)))
WRAP(Irecv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r),
     (b, n, t, from, tag, c, r), add(me, 1, of(n, t)))
WRAP(Sendrecv, (const void *b, int n, MPI_Datatype t, int to, int tag, void *b2, int n2,
                MPI_Datatype t2, int from, int tag2, MPI_Comm c, MPI_Status *s),
     (b, n, t, to, tag, b2, n2, t2, from, tag2, c, s),
     add(me, 1, of(n, t)); add("MPI_Sendrecv_recv", 1, of(n2, t2)))
WRAP(Sendrecv_replace, (void *b, int n, MPI_Datatype t, int to, int tag, int from, int tag2,
                        MPI_Comm c, MPI_Status *s), (b, n, t, to, tag, from, tag2, c, s),
     add(me, 1, of(n, t)); add("MPI_Sendrecv_recv", 1, of(n, t)))
WRAP(Start, (MPI_Request *r), (r), add("MPI_Start", 1, 0))
WRAP(Startall, (int n, MPI_Request *r), (n, r), add("MPI_Start", n, 0))
WRAP(Probe, (int from, int tag, MPI_Comm c, MPI_Status *s), (from, tag, c, s), add(me, 1, 0))
WRAP(Iprobe, (int from, int tag, MPI_Comm c, int *f, MPI_Status *s), (from, tag, c, f, s),
     if (*f) add(me, 1, 0))
WRAP(Wait, (MPI_Request *r, MPI_Status *s), (r, s), add(me, 1, 0))
WRAP(Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s), add(me, 1, 0))
WRAP(Waitany, (int n, MPI_Request r[], int *i, MPI_Status *s), (n, r, i, s), add(me, 1, 0))
WRAP(Waitsome, (int n, MPI_Request r[], int *m, int i[], MPI_Status s[]), (n, r, m, i, s),
     add(me, 1, 0))
WRAP(Test, (MPI_Request *r, int *f, MPI_Status *s), (r, f, s), if (*f) add(me, 1, 0))
WRAP(Testall, (int n, MPI_Request r[], int *f, MPI_Status s[]), (n, r, f, s),
     if (*f) add(me, 1, 0))
WRAP(Testany, (int n, MPI_Request r[], int *i, int *f, MPI_Status *s), (n, r, i, f, s),
     if (*f) add(me, 1, 0))
WRAP(Testsome, (int n, MPI_Request r[], int *m, int i[], MPI_Status s[]), (n, r, m, i, s),
     if (*m) add(me, 1, 0))

#define IN(b) ((b) == MPI_IN_PLACE)
WRAP(Barrier, (MPI_Comm c), (c), add(me, 1, 0))
WRAP(Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c),
     add(me, 1, of(n, t)))
WRAP(Ibcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r),
     (b, n, t, root, c, r), add(me, 1, of(n, t)))
WRAP(Reduce, (const void *b, void *o, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c),
     (b, o, n, t, op, root, c), add(me, 1, of(n, t)))
#define REDUCTION(name)                                                                           \
    WRAP(name, (const void *b, void *o, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),            \
         (b, o, n, t, op, c), add(me, 1, of(n, t)))
REDUCTION(Allreduce) REDUCTION(Scan) REDUCTION(Exscan)
WRAP(Iallreduce, (const void *b, void *o, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c,
                  MPI_Request *r), (b, o, n, t, op, c, r), add(me, 1, of(n, t)))
WRAP(Reduce_scatter, (const void *b, void *o, const int n[], MPI_Datatype t, MPI_Op op,
                      MPI_Comm c), (b, o, n, t, op, c), add(me, 1, of(sum(n, c), t)))
WRAP(Reduce_scatter_block, (const void *b, void *o, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     (b, o, n, t, op, c), add(me, 1, of((long)n * ranks(c), t)))
WRAP(Gather, (const void *b, int n, MPI_Datatype t, void *o, int m, MPI_Datatype u, int root,
              MPI_Comm c), (b, n, t, o, m, u, root, c), add(me, 1, IN(b) ? of(m, u) : of(n, t)))
WRAP(Gatherv, (const void *b, int n, MPI_Datatype t, void *o, const int m[], const int d[],
               MPI_Datatype u, int root, MPI_Comm c), (b, n, t, o, m, d, u, root, c),
     add(me, 1, IN(b) ? of(m[rank_in(c)], u) : of(n, t)))
WRAP(Scatter, (const void *b, int n, MPI_Datatype t, void *o, int m, MPI_Datatype u, int root,
               MPI_Comm c), (b, n, t, o, m, u, root, c), add(me, 1, IN(o) ? of(n, t) : of(m, u)))
WRAP(Scatterv, (const void *b, const int n[], const int d[], MPI_Datatype t, void *o, int m,
                MPI_Datatype u, int root, MPI_Comm c), (b, n, d, t, o, m, u, root, c),
     add(me, 1, IN(o) ? of(n[rank_in(c)], t) : of(m, u)))
WRAP(Allgather, (const void *b, int n, MPI_Datatype t, void *o, int m, MPI_Datatype u,
                 MPI_Comm c), (b, n, t, o, m, u, c), add(me, 1, IN(b) ? of(m, u) : of(n, t)))
WRAP(Allgatherv, (const void *b, int n, MPI_Datatype t, void *o, const int m[], const int d[],
                  MPI_Datatype u, MPI_Comm c), (b, n, t, o, m, d, u, c),
     add(me, 1, IN(b) ? of(m[rank_in(c)], u) : of(n, t)))
WRAP(Alltoall, (const void *b, int n, MPI_Datatype t, void *o, int m, MPI_Datatype u, MPI_Comm c),
     (b, n, t, o, m, u, c), add(me, 1, ranks(c) * (IN(b) ? of(m, u) : of(n, t))))
WRAP(Alltoallv, (const void *b, const int n[], const int d[], MPI_Datatype t, void *o,
                 const int m[], const int e[], MPI_Datatype u, MPI_Comm c),
     (b, n, d, t, o, m, e, u, c), add(me, 1, IN(b) ? of(sum(m, c), u) : of(sum(n, c), t)))

#define MADE(name, parameters, arguments) WRAP(name, parameters, arguments, add(me, 1, 0))
MADE(Comm_dup, (MPI_Comm c, MPI_Comm *o), (c, o))
MADE(Comm_split, (MPI_Comm c, int color, int key, MPI_Comm *o), (c, color, key, o))
MADE(Comm_split_type, (MPI_Comm c, int kind, int key, MPI_Info i, MPI_Comm *o),
     (c, kind, key, i, o))
MADE(Comm_create, (MPI_Comm c, MPI_Group g, MPI_Comm *o), (c, g, o))
MADE(Comm_create_group, (MPI_Comm c, MPI_Group g, int tag, MPI_Comm *o), (c, g, tag, o))
MADE(Comm_free, (MPI_Comm *c), (c))
MADE(Cart_create, (MPI_Comm c, int n, const int d[], const int w[], int reorder, MPI_Comm *o),
     (c, n, d, w, reorder, o))
MADE(Cart_sub, (MPI_Comm c, const int keep[], MPI_Comm *o), (c, keep, o))
MADE(Intercomm_create, (MPI_Comm c, int l, MPI_Comm o, int r, int tag, MPI_Comm *n),
     (c, l, o, r, tag, n))
MADE(Intercomm_merge, (MPI_Comm c, int high, MPI_Comm *o), (c, high, o))

static void write_down(void)
{
    char path[4096];
    const char *folder = getenv("COUNT_DIR");
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/count-%06d.txt", folder ? folder : ".", rank);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && rows[i].name; i++)
        fprintf(file, "%s %ld %ld\n", rows[i].name, rows[i].calls, rows[i].bytes);
    if (file)
        fclose(file);
}

static int do_Finalize(void)
{
    static int (*real)(void);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "PMPI_Finalize");
    if (depth++ == 0)
        write_down();
    int rc = real();
    depth--;
    return rc;
}

int MPI_Finalize(void) { return do_Finalize(); }
int PMPI_Finalize(void) { return do_Finalize(); }
