/* Nonblocking, persistent and neighbourhood collectives, MPI_Isendrecv, partitioned messages:
 * what a later call completes is recorded like its blocking twin. */
#include "expect.h"

enum { MOST = 64 };
static double a[MOST * MOST], b[MOST * MOST];
static int counts[MOST], places[MOST], sends[MOST], sent_at[MOST], recvs[MOST], recv_at[MOST];
static MPI_Datatype ints[MOST];
static int total, sent;

static void wait_for(MPI_Request *r)
{
    MPI_Wait(r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
}

static void sizes(void)
{
    int got = 0;
    for (int i = 0; i < p; i++) {
        counts[i] = i + 1;
        places[i] = total;
        total += i + 1;
        sends[i] = me + 2 * i;
        recvs[i] = i + 2 * me;
        sent_at[i] = 4 * sent;
        recv_at[i] = 4 * got;
        sent += sends[i];
        got += recvs[i];
    }
    for (int i = 0; i < MOST; i++)
        ints[i] = MPI_INT;
}

static void nonblocking(void)
{
    MPI_Request r;
    MPI_Comm w = MPI_COMM_WORLD;
    void *in = MPI_IN_PLACE;
    int last = p - 1;
    MPI_Ibarrier(w, &r), coll_ev("MPI_Ibarrier", 0, 1, -1), wait_for(&r);
    MPI_Ibcast(a, 5, MPI_DOUBLE, last, w, &r), coll_ev("MPI_Ibcast", 40, 8, last), wait_for(&r);
    MPI_Ireduce(a, b, 3, MPI_INT, MPI_SUM, last, w, &r);
    coll_ev("MPI_Ireduce", 12, 4, last), wait_for(&r);
    MPI_Iallreduce(a, b, 2, MPI_DOUBLE, MPI_SUM, w, &r);
    coll_ev("MPI_Iallreduce", 16, 8, -1), wait_for(&r);
    MPI_Iallreduce(in, b, 2, MPI_DOUBLE, MPI_SUM, w, &r);
    coll_ev("MPI_Iallreduce", 16, 8, -1), wait_for(&r);
    MPI_Iscan(a, b, 1, MPI_INT, MPI_SUM, w, &r), coll_ev("MPI_Iscan", 4, 4, -1), wait_for(&r);
    MPI_Iexscan(a, b, 1, MPI_INT, MPI_SUM, w, &r), coll_ev("MPI_Iexscan", 4, 4, -1), wait_for(&r);
    /* arguments that mean nothing at a rank are not looked at */
    MPI_Igather(a, 2, MPI_DOUBLE, me ? NULL : b, me ? -1 : 2, me ? MPI_DATATYPE_NULL : MPI_DOUBLE,
                0, w, &r);
    coll_ev("MPI_Igather", 16, 8, 0), wait_for(&r);
    MPI_Igatherv(me ? a : in, me + 1, MPI_DOUBLE, b, me ? NULL : counts, me ? NULL : places,
                 MPI_DOUBLE, 0, w, &r);
    coll_ev("MPI_Igatherv", 8 * (me + 1), 8, 0), wait_for(&r);
    MPI_Iscatter(a, 3, MPI_DOUBLE, me ? b : in, 3, MPI_DOUBLE, 0, w, &r);
    coll_ev("MPI_Iscatter", 24, 8, 0), wait_for(&r);
    MPI_Iscatterv(a, me ? NULL : counts, me ? NULL : places, MPI_DOUBLE, b, me + 1, MPI_DOUBLE, 0,
                  w, &r);
    coll_ev("MPI_Iscatterv", 8 * (me + 1), 8, 0), wait_for(&r);
    MPI_Iallgather(in, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, w, &r);
    coll_ev("MPI_Iallgather", 8, 4, -1), wait_for(&r);
    MPI_Iallgatherv(a, me + 1, MPI_INT, b, counts, places, MPI_INT, w, &r);
    coll_ev("MPI_Iallgatherv", 4 * (me + 1), 4, -1), wait_for(&r);
    MPI_Ialltoall(a, 2, MPI_DOUBLE, b, 2, MPI_DOUBLE, w, &r);
    coll_ev("MPI_Ialltoall", 16L * p, 8, -1), wait_for(&r);
    MPI_Ialltoallv(a, sends, sent_at, MPI_BYTE, b, recvs, recv_at, MPI_BYTE, w, &r);
    coll_ev("MPI_Ialltoallv", sent, 1, -1), wait_for(&r);
    MPI_Ialltoallw(a, sends, sent_at, ints, b, recvs, recv_at, ints, w, &r);
    coll_ev("MPI_Ialltoallw", 4L * sent, sent ? 4 : 1, -1), wait_for(&r);
    MPI_Ireduce_scatter(a, b, counts, MPI_DOUBLE, MPI_SUM, w, &r);
    coll_ev("MPI_Ireduce_scatter", 8L * total, 8, -1), wait_for(&r);
    MPI_Ireduce_scatter_block(a, b, 0, MPI_DOUBLE, MPI_SUM, w, &r);
    coll_ev("MPI_Ireduce_scatter_block", 0, 8, -1), wait_for(&r);
}

static void neighbours(MPI_Comm comm, int moved)
{
    MPI_Request r;
    MPI_Aint zero[MOST] = {0};
    int far[MOST], one[MOST];
    for (int i = 0; i < MOST; i++)
        far[i] = 8 * i, one[i] = 1;
    MPI_Neighbor_allgather(a, 2, MPI_INT, b, 2, MPI_INT, comm);
    coll_ev("MPI_Neighbor_allgather", 8L * moved, 4, -1);
    MPI_Neighbor_allgatherv(a, 1, MPI_DOUBLE, b, one, far, MPI_DOUBLE, comm);
    coll_ev("MPI_Neighbor_allgatherv", 8L * moved, 8, -1);
    MPI_Neighbor_alltoall(a, 3, MPI_INT, b, 3, MPI_INT, comm);
    coll_ev("MPI_Neighbor_alltoall", 12L * moved, 4, -1);
    MPI_Neighbor_alltoallv(a, one, far, MPI_INT, b, one, far, MPI_INT, comm);
    coll_ev("MPI_Neighbor_alltoallv", 4L * moved, 4, -1);
    MPI_Neighbor_alltoallw(a, one, zero, ints, b, one, zero, ints, comm);
    coll_ev("MPI_Neighbor_alltoallw", 4L * moved, moved ? 4 : 1, -1);
    MPI_Ineighbor_alltoall(a, 1, MPI_DOUBLE, b, 1, MPI_DOUBLE, comm, &r);
    coll_ev("MPI_Ineighbor_alltoall", 8L * moved, 8, -1), wait_for(&r);
    MPI_Ineighbor_allgather(a, 1, MPI_INT, b, 1, MPI_INT, comm, &r);
    coll_ev("MPI_Ineighbor_allgather", 4L * moved, 4, -1), wait_for(&r);
}

static void topologies(void)
{
    MPI_Comm line, ring, graph, star;
    int dims[1] = {p}, open_end[1] = {0}, closed[1] = {1};
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, open_end, 0, &line);
    comm_ev("MPI_Cart_create", p);
    neighbours(line, (me > 0) + (me < p - 1));
    MPI_Comm_free(&line);
    comm_ev("MPI_Comm_free", p);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, closed, 0, &ring);
    comm_ev("MPI_Cart_create", p);
    neighbours(ring, 2);
    MPI_Comm_free(&ring);
    comm_ev("MPI_Comm_free", p);
    /* everybody beside rank 0 knows rank 0, and rank 0 everybody */
    int index[MOST], edges[2 * MOST], n = 0;
    for (int i = 0; i < p; i++) {
        if (i)
            edges[n++] = 0;
        else
            for (int j = 1; j < p; j++)
                edges[n++] = j;
        index[i] = n;
    }
    MPI_Graph_create(MPI_COMM_WORLD, p, index, edges, 0, &graph);
    comm_ev("MPI_Graph_create", p);
    neighbours(graph, me ? 1 : p - 1);
    MPI_Comm_free(&graph);
    comm_ev("MPI_Comm_free", p);
    /* rank 0 sends to all others and hears from nobody */
    int zero = 0, others[MOST];
    for (int i = 1; i < p; i++)
        others[i - 1] = i;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, me ? 1 : 0, &zero, MPI_UNWEIGHTED,
                                   me ? 0 : p - 1, others, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &star);
    comm_ev("MPI_Dist_graph_create_adjacent", p);
    neighbours(star, me ? 0 : p - 1);
    MPI_Comm_free(&star);
    comm_ev("MPI_Comm_free", p);
    int degree = p - 1;
    MPI_Dist_graph_create(MPI_COMM_WORLD, me ? 0 : 1, &zero, &degree, others, MPI_UNWEIGHTED,
                          MPI_INFO_NULL, 0, &star);
    comm_ev("MPI_Dist_graph_create", p);
    neighbours(star, me ? 0 : p - 1);
    MPI_Comm_free(&star);
    comm_ev("MPI_Comm_free", p);
}

#if MPI_VERSION >= 4
static void turn(MPI_Request *r, const char *op, long bytes, int elem, int root)
{
    for (int i = 0; i < 2; i++) {
        MPI_Start(r);
        coll_ev(op, bytes, elem, root);
        wait_for(r);
    }
    MPI_Request_free(r);
}

static void persistent(void)
{
    MPI_Request r, two[2];
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Info no = MPI_INFO_NULL;
    void *in = MPI_IN_PLACE;
    MPI_Barrier_init(w, no, &r), turn(&r, "MPI_Barrier_init", 0, 1, -1);
    MPI_Bcast_init(a, 5, MPI_DOUBLE, 0, w, no, &r), turn(&r, "MPI_Bcast_init", 40, 8, 0);
    MPI_Reduce_init(a, b, 3, MPI_INT, MPI_SUM, p - 1, w, no, &r);
    turn(&r, "MPI_Reduce_init", 12, 4, p - 1);
    MPI_Allreduce_init(a, b, 2, MPI_DOUBLE, MPI_SUM, w, no, &r);
    turn(&r, "MPI_Allreduce_init", 16, 8, -1);
    MPI_Scan_init(a, b, 1, MPI_INT, MPI_SUM, w, no, &r), turn(&r, "MPI_Scan_init", 4, 4, -1);
    MPI_Exscan_init(a, b, 1, MPI_INT, MPI_SUM, w, no, &r), turn(&r, "MPI_Exscan_init", 4, 4, -1);
    MPI_Gather_init(a, 2, MPI_DOUBLE, b, 2, MPI_DOUBLE, 0, w, no, &r);
    turn(&r, "MPI_Gather_init", 16, 8, 0);
    MPI_Gatherv_init(me ? a : in, me + 1, MPI_DOUBLE, b, counts, places, MPI_DOUBLE, 0, w, no, &r);
    turn(&r, "MPI_Gatherv_init", 8 * (me + 1), 8, 0);
    MPI_Scatter_init(a, 3, MPI_DOUBLE, me ? b : in, 3, MPI_DOUBLE, 0, w, no, &r);
    turn(&r, "MPI_Scatter_init", 24, 8, 0);
    MPI_Scatterv_init(a, counts, places, MPI_DOUBLE, b, me + 1, MPI_DOUBLE, 0, w, no, &r);
    turn(&r, "MPI_Scatterv_init", 8 * (me + 1), 8, 0);
    MPI_Allgather_init(in, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, w, no, &r);
    turn(&r, "MPI_Allgather_init", 8, 4, -1);
    MPI_Allgatherv_init(a, me + 1, MPI_INT, b, counts, places, MPI_INT, w, no, &r);
    turn(&r, "MPI_Allgatherv_init", 4 * (me + 1), 4, -1);
    MPI_Alltoall_init(a, 2, MPI_DOUBLE, b, 2, MPI_DOUBLE, w, no, &r);
    turn(&r, "MPI_Alltoall_init", 16L * p, 8, -1);
    MPI_Alltoallv_init(a, sends, sent_at, MPI_BYTE, b, recvs, recv_at, MPI_BYTE, w, no, &r);
    turn(&r, "MPI_Alltoallv_init", sent, 1, -1);
    MPI_Alltoallw_init(a, sends, sent_at, ints, b, recvs, recv_at, ints, w, no, &r);
    turn(&r, "MPI_Alltoallw_init", 4L * sent, sent ? 4 : 1, -1);
    MPI_Reduce_scatter_init(a, b, counts, MPI_DOUBLE, MPI_SUM, w, no, &r);
    turn(&r, "MPI_Reduce_scatter_init", 8L * total, 8, -1);
    MPI_Reduce_scatter_block_init(a, b, 2, MPI_DOUBLE, MPI_SUM, w, no, &r);
    turn(&r, "MPI_Reduce_scatter_block_init", 16L * p, 8, -1);
    /* a persistent message and a persistent collective, started together */
    int x = me, y = -1;
    MPI_Send_init(&x, 1, MPI_INT, me, 3, w, &two[0]);
    MPI_Allreduce_init(a, b, 1, MPI_DOUBLE, MPI_SUM, w, no, &two[1]);
    MPI_Startall(2, two);
    send_ev("MPI_Send_init", me, 4, 4, 3);
    coll_ev("MPI_Allreduce_init", 8, 8, -1);
    MPI_Recv(&y, 1, MPI_INT, me, 3, w, MPI_STATUS_IGNORE);
    send_ev("MPI_Recv", me, 4, 4, 3);
    MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
    done_ev("MPI_Waitall", 2);
    MPI_Request_free(&two[0]), MPI_Request_free(&two[1]);
    MPI_Comm ring;
    int dims[1] = {p}, closed[1] = {1}, one[2] = {1, 1}, far[2] = {0, 1};
    MPI_Aint zero[2] = {0, 64};
    MPI_Cart_create(w, 1, dims, closed, 0, &ring);
    comm_ev("MPI_Cart_create", p);
    MPI_Neighbor_allgather_init(a, 1, MPI_INT, b, 1, MPI_INT, ring, no, &r);
    turn(&r, "MPI_Neighbor_allgather_init", 8, 4, -1);
    MPI_Neighbor_allgatherv_init(a, 1, MPI_INT, b, one, far, MPI_INT, ring, no, &r);
    turn(&r, "MPI_Neighbor_allgatherv_init", 8, 4, -1);
    MPI_Neighbor_alltoall_init(a, 2, MPI_INT, b, 2, MPI_INT, ring, no, &r);
    turn(&r, "MPI_Neighbor_alltoall_init", 16, 4, -1);
    MPI_Neighbor_alltoallv_init(a, one, far, MPI_INT, b, one, far, MPI_INT, ring, no, &r);
    turn(&r, "MPI_Neighbor_alltoallv_init", 8, 4, -1);
    MPI_Neighbor_alltoallw_init(a, one, zero, ints, b, one, zero, ints, ring, no, &r);
    turn(&r, "MPI_Neighbor_alltoallw_init", 8, 4, -1);
    MPI_Comm_free(&ring);
    comm_ev("MPI_Comm_free", p);
}

static void both_ways(void)
{
    MPI_Request r;
    MPI_Status s;
    int x = me, y = -1, right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Isendrecv(&x, 1, MPI_INT, right, 5, &y, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                  MPI_COMM_WORLD, &r);
    send_ev("MPI_Isendrecv", right, 4, 4, 5);
#ifdef MPICH
    send_ev("MPI_Isendrecv_recv", -2, 4, 4, -1); /* its status does not tell */
#else
    send_ev("MPI_Isendrecv_recv", left, 4, 4, 5);
#endif
    MPI_Wait(&r, &s);
    done_ev("MPI_Wait", 1);
    check(y == left, "Isendrecv");
    MPI_Isendrecv_replace(&x, 1, MPI_INT, right, 6, left, 6, MPI_COMM_WORLD, &r);
    send_ev("MPI_Isendrecv_replace", right, 4, 4, 6);
    send_ev("MPI_Isendrecv_recv", left, 4, 4, 6);
    wait_for(&r);
    check(x == left, "Isendrecv_replace");
    MPI_Isendrecv(&x, 1, MPI_INT, MPI_PROC_NULL, 5, &y, 1, MPI_INT, MPI_PROC_NULL, 5,
                  MPI_COMM_WORLD, &r);
    send_ev("MPI_Isendrecv", -3, 4, 4, 5);
    send_ev("MPI_Isendrecv_recv", -3, 4, 4, 5);
    wait_for(&r);
}

static void partitioned(void)
{
    MPI_Request out, in;
    int right = (me + 1) % p, left = (me + p - 1) % p, flag = 0, both[2] = {2, 3};
    MPI_Psend_init(a, 4, 3, MPI_DOUBLE, right, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &out);
    MPI_Precv_init(b, 2, 6, MPI_DOUBLE, left, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &in);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&in);
        send_ev("MPI_Precv_init", left, 96, 8, 9);
        MPI_Start(&out);
        send_ev("MPI_Psend_init", right, 96, 8, 9);
        MPI_Pready(0, out);
        send_ev("MPI_Pready", right, 24, 8, 9);
        MPI_Pready_range(1, 1, out);
        send_ev("MPI_Pready_range", right, 24, 8, 9);
        MPI_Pready_list(2, both, out);
        send_ev("MPI_Pready_list", right, 48, 8, 9);
        wait_for(&out);
        for (MPI_Parrived(in, 1, &flag); !flag; MPI_Parrived(in, 1, &flag))
            failed_polls++;
        wait_for(&in);
    }
    MPI_Request_free(&out), MPI_Request_free(&in);
}
#endif

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    expect_open();
    ev("MPI_Init", -1, 0, 1, -1, -1, p);
    sizes();
    nonblocking();
    if (p > 1) /* not every MPI takes a graph of one process without edges */
        topologies();
#if MPI_VERSION >= 4
    persistent();
#if !defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 40100000 /* MPICH 4.0 crashes in it */
    both_ways();
#endif
    partitioned();
#endif
    expect_close();
    MPI_Finalize();
    return 0;
}
