/* What Open MPI or MPICH sends and receives for its collectives, message by message.
 *
 * Arguments: a file of lines "CALL BYTES ROOT" and a prefix; rank r writes prefix.r, one line per
 * call: words like i3:64 - letter (s send, i nonblocking send, r receive, q nonblocking receive),
 * peer, bytes (of a receive: of its buffer). BYTES as in a scaled trace; gatherv, scatterv,
 * allgatherv: member r has BYTES * (r % 3).
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static FILE *told;
static int noting;

static void note(char what, int peer, size_t count, MPI_Datatype type, MPI_Comm comm) {
    int unit;
    if (!noting) return;
    MPI_Type_size(type, &unit);
    if (comm != MPI_COMM_WORLD && peer >= 0) { /* a communicator of the library's own */
        MPI_Group inner, world;
        int mine = peer;
        MPI_Comm_group(comm, &inner), MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_translate_ranks(inner, 1, &mine, world, &peer);
        MPI_Group_free(&inner), MPI_Group_free(&world);
    }
    fprintf(told, "%c%d:%zu ", what, peer, count * unit);
}

#ifdef OPEN_MPI
/* Open MPI's table of point-to-point functions (ompi/mca/pml/pml.h); its collectives go through
 * it. Version 5 has one more entry before those of interest. */
extern struct {
    void *entry[16];
} mca_pml;
#define AT(i) ((i) + (OMPI_MAJOR_VERSION >= 5))
enum { IRECV = AT(7), RECV = AT(8), ISEND_INIT = AT(9), ISEND = AT(10), SEND = AT(11),
       IRECV_INIT = AT(6) };

typedef int isend_fn(const void *, size_t, MPI_Datatype, int, int, int, MPI_Comm, void **);
typedef int send_fn(const void *, size_t, MPI_Datatype, int, int, int, MPI_Comm);
typedef int irecv_fn(void *, size_t, MPI_Datatype, int, int, MPI_Comm, void **);
typedef int recv_fn(void *, size_t, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
static isend_fn *real_isend, *real_isend_init;
static send_fn *real_send;
static irecv_fn *real_irecv, *real_irecv_init;
static recv_fn *real_recv;

static int my_isend(const void *b, size_t n, MPI_Datatype t, int to, int tag, int mode, MPI_Comm c,
                    void **request) {
    note('i', to, n, t, c);
    return real_isend(b, n, t, to, tag, mode, c, request);
}
static int my_isend_init(const void *b, size_t n, MPI_Datatype t, int to, int tag, int mode,
                         MPI_Comm c, void **request) {
    note('i', to, n, t, c);
    return real_isend_init(b, n, t, to, tag, mode, c, request);
}
static int my_send(const void *b, size_t n, MPI_Datatype t, int to, int tag, int mode, MPI_Comm c) {
    note('s', to, n, t, c);
    return real_send(b, n, t, to, tag, mode, c);
}
static int my_irecv(void *b, size_t n, MPI_Datatype t, int from, int tag, MPI_Comm c, void **r) {
    note('q', from, n, t, c);
    return real_irecv(b, n, t, from, tag, c, r);
}
static int my_irecv_init(void *b, size_t n, MPI_Datatype t, int from, int tag, MPI_Comm c,
                         void **r) {
    note('q', from, n, t, c);
    return real_irecv_init(b, n, t, from, tag, c, r);
}
static int my_recv(void *b, size_t n, MPI_Datatype t, int from, int tag, MPI_Comm c,
                   MPI_Status *status) {
    note('r', from, n, t, c);
    return real_recv(b, n, t, from, tag, c, status);
}

static void interpose(void) {
    real_isend = mca_pml.entry[ISEND], mca_pml.entry[ISEND] = my_isend;
    real_isend_init = mca_pml.entry[ISEND_INIT], mca_pml.entry[ISEND_INIT] = my_isend_init;
    real_send = mca_pml.entry[SEND], mca_pml.entry[SEND] = my_send;
    real_irecv = mca_pml.entry[IRECV], mca_pml.entry[IRECV] = my_irecv;
    real_irecv_init = mca_pml.entry[IRECV_INIT], mca_pml.entry[IRECV_INIT] = my_irecv_init;
    real_recv = mca_pml.entry[RECV], mca_pml.entry[RECV] = my_recv;
}
#else
/* MPICH, linked statically with -Wl,--wrap=MPIC_Send and so on (src/mpi/coll/helper_fns.c, 4.0);
 * a communicator begins with its handle. */
#define COMM(c) (*(MPI_Comm *)(c))
int __real_MPIC_Send(const void *, MPI_Aint, MPI_Datatype, int, int, void *, void *);
int __wrap_MPIC_Send(const void *b, MPI_Aint n, MPI_Datatype t, int to, int tag, void *c, void *e) {
    note('s', to, n, t, COMM(c));
    return __real_MPIC_Send(b, n, t, to, tag, c, e);
}
int __real_MPIC_Recv(void *, MPI_Aint, MPI_Datatype, int, int, void *, void *, void *);
int __wrap_MPIC_Recv(void *b, MPI_Aint n, MPI_Datatype t, int from, int tag, void *c, void *status,
                     void *e) {
    note('r', from, n, t, COMM(c));
    return __real_MPIC_Recv(b, n, t, from, tag, c, status, e);
}
int __real_MPIC_Isend(const void *, MPI_Aint, MPI_Datatype, int, int, void *, void *, void *);
int __wrap_MPIC_Isend(const void *b, MPI_Aint n, MPI_Datatype t, int to, int tag, void *c, void *r,
                      void *e) {
    note('i', to, n, t, COMM(c));
    return __real_MPIC_Isend(b, n, t, to, tag, c, r, e);
}
int __real_MPIC_Irecv(void *, MPI_Aint, MPI_Datatype, int, int, void *, void *);
int __wrap_MPIC_Irecv(void *b, MPI_Aint n, MPI_Datatype t, int from, int tag, void *c, void *r) {
    note('q', from, n, t, COMM(c));
    return __real_MPIC_Irecv(b, n, t, from, tag, c, r);
}
int __real_MPIC_Sendrecv(const void *, MPI_Aint, MPI_Datatype, int, int, void *, MPI_Aint,
                         MPI_Datatype, int, int, void *, void *, void *);
int __wrap_MPIC_Sendrecv(const void *b, MPI_Aint n, MPI_Datatype t, int to, int tag, void *b2,
                         MPI_Aint n2, MPI_Datatype t2, int from, int tag2, void *c, void *status,
                         void *e) {
    note('q', from, n2, t2, COMM(c));
    note('s', to, n, t, COMM(c));
    return __real_MPIC_Sendrecv(b, n, t, to, tag, b2, n2, t2, from, tag2, c, status, e);
}

static void interpose(void) {}
#endif

/* The blocking call of a name, or the nonblocking twin of i + name. */
#define NO MPI_STATUS_IGNORE
#define DO(given, call, icall, ...)                                       \
    do {                                                                  \
        if (!strcmp(name, given)) call(__VA_ARGS__, w);                   \
        if (name[0] == 'i' && !strcmp(name + 1, given))                   \
            icall(__VA_ARGS__, w, &request), MPI_Wait(&request, NO);      \
    } while (0)

static void call(const char *name, long bytes, int root) {
    int unit = bytes % 8 ? (bytes % 4 ? 1 : 4) : 8;
    MPI_Datatype type = unit == 8 ? MPI_DOUBLE : unit == 4 ? MPI_INT : MPI_BYTE;
    MPI_Op op = unit == 1 ? MPI_BOR : MPI_SUM;
    int count = bytes / unit, v = !strcmp(name + strlen(name) - 2, "rv");
    long total = (bytes + 64) * (long)(size + 1) * 3;
    char *in = calloc(1, total), *out = calloc(1, total);
    int *counts = calloc(size, sizeof *counts), *at = calloc(size + 1, sizeof *at);
    for (int r = 0; r < size; r++) {
        counts[r] = v ? count * (r % 3) : count;
        at[r + 1] = at[r] + counts[r];
    }
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    int *one = calloc(size, sizeof *one), *zero = calloc(size, sizeof *zero);
    MPI_Datatype *types = calloc(size, sizeof *types);
    int even = !strcmp(name + strlen(name) - 7, "scatter"), block = count / size;
    for (int r = 0; r < size; r++) {
        one[r] = block + (even && r < count % size);
        types[r] = type;
    }
    if (!strcmp(name, "barrier")) MPI_Barrier(w);
    if (!strcmp(name, "ibarrier")) MPI_Ibarrier(w, &request), MPI_Wait(&request, NO);
    DO("bcast", MPI_Bcast, MPI_Ibcast, in, count, type, root);
    DO("reduce", MPI_Reduce, MPI_Ireduce, in, out, count, type, op, root);
    DO("allreduce", MPI_Allreduce, MPI_Iallreduce, in, out, count, type, op);
    DO("scan", MPI_Scan, MPI_Iscan, in, out, count, type, op);
    DO("exscan", MPI_Exscan, MPI_Iexscan, in, out, count, type, op);
    DO("gather", MPI_Gather, MPI_Igather, in, count, type, out, count, type, root);
    DO("scatter", MPI_Scatter, MPI_Iscatter, in, count, type, out, count, type, root);
    DO("allgather", MPI_Allgather, MPI_Iallgather, in, count, type, out, count, type);
    DO("gatherv", MPI_Gatherv, MPI_Igatherv, in, counts[rank], type, out, counts, at, type, root);
    DO("scatterv", MPI_Scatterv, MPI_Iscatterv, in, counts, at, type, out, counts[rank], type,
       root);
    DO("allgatherv", MPI_Allgatherv, MPI_Iallgatherv, in, counts[rank], type, out, counts, at,
       type);
    DO("alltoall", MPI_Alltoall, MPI_Ialltoall, in, block, type, out, block, type);
    DO("alltoallv", MPI_Alltoallv, MPI_Ialltoallv, in, one, zero, type, out, one, zero, type);
    DO("alltoallw", MPI_Alltoallw, MPI_Ialltoallw, in, one, zero, types, out, one, zero, types);
    DO("reduce_scatter_block", MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, out, block,
       type, op);
    DO("reduce_scatter", MPI_Reduce_scatter, MPI_Ireduce_scatter, in, out, one, type, op);
    free(one), free(zero), free(types);
    free(in), free(out), free(counts), free(at);
}

/* Calls that make a communicator of the world, or leave one. */
static void make(const char *name) {
    MPI_Comm w = MPI_COMM_WORLD, made = MPI_COMM_NULL;
    int period = 1, edge = rank;
    MPI_Group all;
    MPI_Comm_group(w, &all);
    if (!strcmp(name, "comm_dup")) MPI_Comm_dup(w, &made);
    if (!strcmp(name, "comm_split")) MPI_Comm_split(w, rank % 2, rank, &made);
    if (!strcmp(name, "comm_split_type"))
        MPI_Comm_split_type(w, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    if (!strcmp(name, "comm_create")) MPI_Comm_create(w, all, &made);
    if (!strcmp(name, "cart_create")) MPI_Cart_create(w, 1, &size, &period, 0, &made);
    if (!strcmp(name, "dist_graph_create_adjacent"))
        MPI_Dist_graph_create_adjacent(w, 1, &edge, &edge, 1, &edge, &edge, MPI_INFO_NULL, 0, &made);
    if (!strcmp(name, "graph_create")) {
        int ends[64] = {0};
        MPI_Graph_create(w, size, ends, ends, 0, &made);
    }
    noting = 0;
    if (made != MPI_COMM_NULL) MPI_Comm_free(&made);
    MPI_Group_free(&all);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);
    char path[4096], name[64];
    long bytes;
    int root;
    snprintf(path, sizeof path, "%s.%d", argv[2], rank);
    FILE *list = fopen(argv[1], "r");
    told = fopen(path, "w");
    if (!list || !told) MPI_Abort(MPI_COMM_WORLD, 2);
    interpose();
    while (fscanf(list, "%63s %ld %d", name, &bytes, &root) == 3) {
        noting = 1;
        call(name, bytes, root), make(name);
        noting = 0;
        fprintf(told, "\n");
    }
    fclose(told);
    MPI_Finalize();
    return 0;
}
