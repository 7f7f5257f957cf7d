/* MPI_IN_PLACE in every collective that allows it, blocking and nonblocking. */
#include "conform.h"

static int *a, *counts_, *places;
static MPI_Datatype *types;
static int n;

static void fill(void)
{
    n = p * (p + 4);
    for (int i = 0; i < n; i++)
        a[i] = (me + 1) * 1000 + i;
    for (int i = 0, at = 0; i < p; i++) {
        counts_[i] = i + 1;
        places[i] = at;
        types[i] = MPI_INT;
        at += counts_[i];
    }
}

static void look(const char *what, int ints)
{
    say("%s %lx", what, checksum(a, sizeof(int) * (size_t)ints));
}

#define W MPI_COMM_WORLD
#define BOTH(op, lower, bytes, ints, ...)                                                         \
    do {                                                                                          \
        MPI_Request request;                                                                      \
        fill();                                                                                   \
        DO(op, bytes, __VA_ARGS__);                                                               \
        look(#op, ints);                                                                          \
        fill();                                                                                   \
        called("MPI_I" #lower, bytes, MPI_I##lower(__VA_ARGS__, &request));                       \
        DONE(Wait, 1, &request, MPI_STATUS_IGNORE);                                               \
        look("I" #lower, ints);                                                                   \
    } while (0)

int main(void)
{
    begin();
    a = malloc(sizeof(int) * (size_t)(p * (p + 4)));
    counts_ = malloc(sizeof(int) * (size_t)p);
    places = malloc(sizeof(int) * (size_t)p);
    types = malloc(sizeof(MPI_Datatype) * (size_t)p);
    int root = p - 1, own = 4 * (me + 1), triangle = p * (p + 1) / 2;

    BOTH(Allreduce, allreduce, 12, 3, MPI_IN_PLACE, a, 3, MPI_INT, MPI_SUM, W);
    BOTH(Scan, scan, 12, 3, MPI_IN_PLACE, a, 3, MPI_INT, MPI_SUM, W);
    BOTH(Exscan, exscan, 12, me ? 3 : 0, MPI_IN_PLACE, a, 3, MPI_INT, MPI_MAX, W);
    BOTH(Reduce, reduce, 12, 3, me == root ? MPI_IN_PLACE : a, me == root ? a : NULL, 3, MPI_INT,
         MPI_SUM, root, W);
    BOTH(Gather, gather, 8, me == root ? 2 * p : 0, me == root ? MPI_IN_PLACE : a, 2, MPI_INT, a,
         2, MPI_INT, root, W);
    BOTH(Gatherv, gatherv, own, me == root ? triangle : 0, me == root ? MPI_IN_PLACE : a, me + 1,
         MPI_INT, a, counts_, places, MPI_INT, root, W);
    BOTH(Scatter, scatter, 8, me == root ? 2 * p : 2, a, 2, MPI_INT,
         me == root ? MPI_IN_PLACE : a, 2, MPI_INT, root, W);
    BOTH(Scatterv, scatterv, own, me == root ? triangle : me + 1, a, counts_, places, MPI_INT,
         me == root ? MPI_IN_PLACE : a, me + 1, MPI_INT, root, W);
    BOTH(Allgather, allgather, 8, 2 * p, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INT, W);
    BOTH(Allgatherv, allgatherv, own, triangle, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, counts_,
         places, MPI_INT, W);
    BOTH(Alltoall, alltoall, 8 * p, 2 * p, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INT, W);
    BOTH(Reduce_scatter, reduce_scatter, 4 * triangle, me + 1, MPI_IN_PLACE, a, counts_, MPI_INT,
         MPI_SUM, W);
    BOTH(Reduce_scatter_block, reduce_scatter_block, 8 * p, 2, MPI_IN_PLACE, a, 2, MPI_INT,
         MPI_SUM, W);
    /* All ranks exchange as much in both directions: MPI_IN_PLACE needs it. */
    fill();
    for (int i = 0; i < p; i++)
        counts_[i] = (me + i) % 3, places[i] = 3 * i;
    int sum = 0;
    for (int i = 0; i < p; i++)
        sum += counts_[i];
    DO(Alltoallv, 4 * sum, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, a, counts_, places,
       MPI_INT, W);
    look("Alltoallv", 3 * p);
    for (int i = 0; i < p; i++)
        places[i] *= 4;
    DO(Alltoallw, 4 * sum, MPI_IN_PLACE, NULL, NULL, NULL, a, counts_, places, types, W);
    look("Alltoallw", 3 * p);
    free(a);
    free(counts_);
    free(places);
    free(types);
    end();
    return 0;
}
