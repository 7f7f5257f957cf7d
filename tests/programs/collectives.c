/* Every blocking collective with the byte rules of docs/capture-format.md, communicators made in
 * every way, and MPI_IN_PLACE. */
#include "expect.h"

enum { MOST = 64 };
static double a[MOST * MOST], b[MOST * MOST];
static int counts[MOST], places[MOST], ones[MOST];

/* The whole set on one communicator; root 0 is world rank `first`. */
static void all_of_them(MPI_Comm comm, int first)
{
    int n, r, old_p = p;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &r);
    p = n;
    int total = 0;
    for (int i = 0; i < n; i++) {
        counts[i] = i + 1;
        ones[i] = 1;
        places[i] = total;
        total += i + 1;
    }
    void *in = MPI_IN_PLACE;
    MPI_Barrier(comm);
    coll_ev("MPI_Barrier", 0, 1, -1);
    MPI_Bcast(a, 5, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Bcast", 40, 8, first);
    MPI_Reduce(a, b, 3, MPI_DOUBLE, MPI_SUM, 0, comm);
    coll_ev("MPI_Reduce", 24, 8, first);
    MPI_Reduce(r ? a : in, b, 3, MPI_DOUBLE, MPI_SUM, 0, comm);
    coll_ev("MPI_Reduce", 24, 8, first);
    MPI_Allreduce(a, b, 2, MPI_DOUBLE, MPI_MAX, comm);
    coll_ev("MPI_Allreduce", 16, 8, -1);
    MPI_Allreduce(in, b, 2, MPI_DOUBLE, MPI_MAX, comm);
    coll_ev("MPI_Allreduce", 16, 8, -1);
    MPI_Scan(a, b, 1, MPI_INT, MPI_SUM, comm);
    coll_ev("MPI_Scan", 4, 4, -1);
    MPI_Exscan(a, b, 1, MPI_INT, MPI_SUM, comm);
    coll_ev("MPI_Exscan", 4, 4, -1);
    MPI_Gather(a, 2, MPI_DOUBLE, b, 2, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Gather", 16, 8, first);
    MPI_Gather(r ? a : in, r ? 4 : -7, r ? MPI_INT : MPI_DATATYPE_NULL, b, 2, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Gather", 16, r ? 4 : 8, first);
    MPI_Gatherv(a, r + 1, MPI_DOUBLE, b, counts, places, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Gatherv", 8 * (r + 1), 8, first);
    MPI_Gatherv(r ? a : in, r + 1, MPI_DOUBLE, b, counts, places, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Gatherv", 8 * (r + 1), 8, first);
    MPI_Scatter(a, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Scatter", 24, 8, first);
    MPI_Scatter(a, 3, MPI_DOUBLE, r ? b : in, 3, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Scatter", 24, 8, first);
    MPI_Scatterv(a, counts, places, MPI_DOUBLE, b, r + 1, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Scatterv", 8 * (r + 1), 8, first);
    MPI_Scatterv(a, counts, places, MPI_DOUBLE, r ? b : in, r + 1, MPI_DOUBLE, 0, comm);
    coll_ev("MPI_Scatterv", 8 * (r + 1), 8, first);
    MPI_Allgather(a, 2, MPI_INT, b, 2, MPI_INT, comm);
    coll_ev("MPI_Allgather", 8, 4, -1);
    MPI_Allgather(in, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, comm);
    coll_ev("MPI_Allgather", 8, 4, -1);
    MPI_Allgatherv(a, r + 1, MPI_INT, b, counts, places, MPI_INT, comm);
    coll_ev("MPI_Allgatherv", 4 * (r + 1), 4, -1);
    MPI_Allgatherv(in, 0, MPI_DATATYPE_NULL, b, counts, places, MPI_INT, comm);
    coll_ev("MPI_Allgatherv", 4 * (r + 1), 4, -1);
    MPI_Alltoall(a, 2, MPI_DOUBLE, b, 2, MPI_DOUBLE, comm);
    coll_ev("MPI_Alltoall", 16L * n, 8, -1);
    MPI_Alltoall(in, 0, MPI_DATATYPE_NULL, b, 2, MPI_DOUBLE, comm);
    coll_ev("MPI_Alltoall", 16L * n, 8, -1);
    int sends[MOST], sent = 0, sent_at[MOST], recvs[MOST], recv_at[MOST], got = 0;
    for (int i = 0; i < n; i++) {
        sends[i] = r + 2 * i;
        recvs[i] = i + 2 * r;
        sent_at[i] = sent;
        recv_at[i] = got;
        sent += sends[i];
        got += recvs[i];
    }
    MPI_Alltoallv(a, sends, sent_at, MPI_DOUBLE, b, recvs, recv_at, MPI_DOUBLE, comm);
    coll_ev("MPI_Alltoallv", 8L * sent, 8, -1);
    MPI_Datatype kinds[MOST];
    for (int i = 0; i < n; i++) {
        kinds[i] = MPI_INT;
        sent_at[i] *= 4;
        recv_at[i] *= 4;
    }
    MPI_Alltoallw(a, sends, sent_at, kinds, b, recvs, recv_at, kinds, comm);
    coll_ev("MPI_Alltoallw", 4L * sent, sent ? 4 : 1, -1);
    for (int i = 0; i < n; i++) {
        sends[i] = r + i;
        sent_at[i] = i ? sent_at[i - 1] + sends[i - 1] : 0;
    }
    sent = sent_at[n - 1] + sends[n - 1];
    MPI_Alltoallv(in, NULL, NULL, MPI_DATATYPE_NULL, b, sends, sent_at, MPI_DOUBLE, comm);
    coll_ev("MPI_Alltoallv", 8L * sent, 8, -1);
    MPI_Reduce_scatter(a, b, counts, MPI_DOUBLE, MPI_SUM, comm);
    coll_ev("MPI_Reduce_scatter", 8L * total, 8, -1);
    MPI_Reduce_scatter(in, b, ones, MPI_DOUBLE, MPI_SUM, comm);
    coll_ev("MPI_Reduce_scatter", 8L * n, 8, -1);
    MPI_Reduce_scatter_block(a, b, 2, MPI_DOUBLE, MPI_SUM, comm);
    coll_ev("MPI_Reduce_scatter_block", 16L * n, 8, -1);
    p = old_p;
}

static void nonblocking(void)
{
    MPI_Request r[2];
    MPI_Iallreduce(a, b, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r[0]);
    coll_ev("MPI_Iallreduce", 16, 8, -1);
    MPI_Ibarrier(MPI_COMM_WORLD, &r[1]);
    coll_ev("MPI_Ibarrier", 0, 1, -1);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    done_ev("MPI_Waitall", 2);
}

static void communicators(void)
{
    MPI_Comm half, copy, cart, row, made, group_made, shared, again;
    MPI_Group all, evens;
    int color = me % 2, size = (p + 1 - color) / 2, x = me, y = -1;
    MPI_Comm_split(MPI_COMM_WORLD, color, -me, &half); /* reversed order */
    comm_ev("MPI_Comm_split", p);
    int r;
    MPI_Comm_rank(half, &r);
    /* rank i of half is world rank color + 2 (size - 1 - i) */
    int to = (r + 1) % size, from = (r + size - 1) % size;
    int to_world = color + 2 * (size - 1 - to), from_world = color + 2 * (size - 1 - from);
    MPI_Sendrecv(&x, 1, MPI_INT, to, 3, &y, 1, MPI_INT, MPI_ANY_SOURCE, 3, half,
                 MPI_STATUS_IGNORE);
    ev("MPI_Sendrecv", to_world, 4, 4, 3, -1, size);
    ev("MPI_Sendrecv_recv", from_world, 4, 4, 3, -1, size);
    check(y == from_world, "sub-communicator");
    all_of_them(half, color + 2 * (size - 1));
    MPI_Comm_dup(half, &copy);
    comm_ev("MPI_Comm_dup", size);
    MPI_Barrier(copy);
    comm_ev("MPI_Barrier", size);
    MPI_Comm_free(&copy);
    comm_ev("MPI_Comm_free", size);
    check(copy == MPI_COMM_NULL, "Comm_free");
    MPI_Comm_free(&half);
    comm_ev("MPI_Comm_free", size);
    for (int i = 0; i < 3; i++) { /* the same handle again and again, other members */
        int mine = me / (i + 1);
        int first = mine * (i + 1), last = first + i < p ? first + i : p - 1;
        MPI_Comm_split(MPI_COMM_WORLD, mine, me, &again);
        comm_ev("MPI_Comm_split", p);
        MPI_Bcast(&x, 1, MPI_INT, 0, again);
        ev("MPI_Bcast", -1, 4, 4, -1, first, last - first + 1);
        MPI_Comm_free(&again);
        comm_ev("MPI_Comm_free", last - first + 1);
    }
    int dims[2] = {p, 1}, periods[2] = {1, 0}, keep[2] = {1, 0};
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    comm_ev("MPI_Cart_create", p);
    MPI_Cart_sub(cart, keep, &row);
    comm_ev("MPI_Cart_sub", p);
    MPI_Barrier(row);
    comm_ev("MPI_Barrier", p);
    MPI_Comm_free(&row);
    comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&cart);
    comm_ev("MPI_Comm_free", p);
    int list[MOST], n = 0;
    for (int i = 0; i < p; i += 2)
        list[n++] = i;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, n, list, &evens);
    MPI_Comm_create(MPI_COMM_WORLD, evens, &made);
    comm_ev("MPI_Comm_create", p);
    if (me % 2 == 0) {
        MPI_Comm_create_group(MPI_COMM_WORLD, evens, 0, &group_made);
        comm_ev("MPI_Comm_create_group", p);
        MPI_Barrier(group_made);
        comm_ev("MPI_Barrier", n);
        MPI_Comm_free(&group_made);
        comm_ev("MPI_Comm_free", n);
        MPI_Comm_free(&made);
        comm_ev("MPI_Comm_free", n);
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    comm_ev("MPI_Comm_split_type", p);
    MPI_Comm_free(&shared);
    comm_ev("MPI_Comm_free", p);
    MPI_Group_free(&all);
    MPI_Group_free(&evens);
    MPI_Barrier(MPI_COMM_SELF);
    comm_ev("MPI_Barrier", 1);
}

static void intercommunicator(void)
{
    MPI_Comm side, inter, merged;
    if (p < 2)
        return;
    int color = me % 2, size = (p + 1 - color) / 2, other = p - size, x = me, y = -1;
    MPI_Comm_split(MPI_COMM_WORLD, color, me, &side);
    comm_ev("MPI_Comm_split", p);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, 1 - color, 5, &inter);
    comm_ev("MPI_Intercomm_create", size);
    int mine = me / 2;                       /* rank in side */
    if (mine < other && mine < size) {       /* rank i of the other side is world rank 2i or 2i+1 */
        int peer = 2 * mine + 1 - color;
        MPI_Sendrecv(&x, 1, MPI_INT, mine, 1, &y, 1, MPI_INT, mine, 1, inter, MPI_STATUS_IGNORE);
        ev("MPI_Sendrecv", peer, 4, 4, 1, -1, p);
        ev("MPI_Sendrecv_recv", peer, 4, 4, 1, -1, p);
        check(y == peer, "intercommunicator");
    }
    /* world rank 0 is the root on its side, the others of its side stand by */
    int root = color ? 0 : me == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Bcast(&x, 1, MPI_INT, root, inter);
    ev("MPI_Bcast", -1, color || me == 0 ? 4 : 0, 4, -1, color || me == 0 ? 0 : -3, p);
    MPI_Gather(&x, 1, MPI_INT, b, 1, MPI_INT, root, inter);
    ev("MPI_Gather", -1, color ? 4 : 0, color ? 4 : 1, -1, color || me == 0 ? 0 : -3, p);
    MPI_Alltoall(a, 1, MPI_INT, b, 1, MPI_INT, inter);
    ev("MPI_Alltoall", -1, 4L * other, 4, -1, -1, p);
    MPI_Intercomm_merge(inter, color, &merged);
    comm_ev("MPI_Intercomm_merge", p);
    MPI_Barrier(merged);
    comm_ev("MPI_Barrier", p);
    MPI_Comm_free(&merged);
    comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&inter);
    comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&side);
    comm_ev("MPI_Comm_free", size);
}

int main(void)
{
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    expect_open();
    ev("MPI_Init", -1, 0, 1, -1, -1, p);
    if (p > MOST)
        MPI_Abort(MPI_COMM_WORLD, 2);
    all_of_them(MPI_COMM_WORLD, 0);
    nonblocking();
    communicators();
    intercommunicator();
    expect_close();
    MPI_Finalize();
    return 0;
}
