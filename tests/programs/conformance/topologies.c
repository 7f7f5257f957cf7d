/* Cartesian and graph communicators and the neighbourhood collectives. */
#include "conform.h"

static MPI_Comm w = MPI_COMM_WORLD;

static void grid(void)
{
    int dims[2] = {0, 0}, periods[2] = {1, 0}, keep[2] = {0, 1}, coords[2], from, to, rank;
    MPI_Comm cart, row, copy;
    MPI_Request request;
    MPI_Dims_create(p, 2, dims);
    DO(Cart_create, 0, w, 2, dims, periods, 0, &cart);
    MPI_Comm_rank(cart, &rank);
    MPI_Cart_coords(cart, rank, 2, coords);
    say("%d x %d: at %d %d", dims[0], dims[1], coords[0], coords[1]);
    for (int d = 0; d < 2; d++) {
        int got = -1;
        MPI_Cart_shift(cart, d, 1, &from, &to);
        exchanged("MPI_Sendrecv", 4, 4,
                  MPI_Sendrecv(&me, 1, MPI_INT, to, 1, &got, 1, MPI_INT, from, 1, cart,
                               MPI_STATUS_IGNORE));
        say("shift %d", got);
    }
    DO(Cart_sub, 0, cart, keep, &row);
    int sum = 0, around[4] = {-1, -1, -1, -1}, mine[4] = {me, me + 1, me + 2, me + 3};
    DO(Allreduce, 4, &me, &sum, 1, MPI_INT, MPI_SUM, row);
    say("row %d", sum);
    DO(Neighbor_allgather, -1, &me, 1, MPI_INT, around, 1, MPI_INT, cart);
    say("around %d %d %d %d", around[0], around[1], around[2], around[3]);
    DO(Neighbor_alltoall, -1, mine, 1, MPI_INT, around, 1, MPI_INT, cart);
    say("around %d %d %d %d", around[0], around[1], around[2], around[3]);
    DO(Ineighbor_allgather, -1, &sum, 1, MPI_INT, around, 1, MPI_INT, cart, &request);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    say("around %d %d %d %d", around[0], around[1], around[2], around[3]);
    DO(Comm_dup, 0, cart, &copy);
    DO(Comm_free, 0, &cart);
    DO(Barrier, 0, copy);
    DO(Comm_free, 0, &copy);
    DO(Comm_free, 0, &row);
    /* One rank less than there are: the last is not in it. */
    DO(Cart_create, 0, w, 1, (int[]){p > 1 ? p - 1 : 1}, periods, 1, &cart);
    if (cart != MPI_COMM_NULL) {
        DO(Barrier, 0, cart);
        DO(Comm_free, 0, &cart);
    }
}

static void graphs(void)
{
    int index[64], edges[128], from[1] = {(me + p - 1) % p}, to[1] = {(me + 1) % p}, got = -1;
    int one = 1, n;
    MPI_Comm graph;
    for (int i = 0; i < p; i++) {
        index[i] = 2 * (i + 1);
        edges[2 * i] = (i + 1) % p;
        edges[2 * i + 1] = (i + p - 1) % p;
    }
    DO(Graph_create, 0, w, p, index, edges, 0, &graph);
    MPI_Graph_neighbors_count(graph, me, &n);
    DO(Barrier, 0, graph);
    say("graph: %d neighbours", n);
    DO(Comm_free, 0, &graph);
    DO(Dist_graph_create_adjacent, 0, w, 1, from, MPI_UNWEIGHTED, 1, to, MPI_UNWEIGHTED,
       MPI_INFO_NULL, 0, &graph);
    DO(Neighbor_allgather, -1, &me, 1, MPI_INT, &got, 1, MPI_INT, graph);
    say("from the left %d", got);
    DO(Neighbor_alltoallv, -1, &me, &one, (int[]){0}, MPI_INT, &got, &one, (int[]){0}, MPI_INT,
       graph);
    say("from the left %d", got);
    DO(Comm_free, 0, &graph);
    DO(Dist_graph_create, 0, w, 1, &me, &one, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    DO(Neighbor_allgather, -1, &me, 1, MPI_INT, &got, 1, MPI_INT, graph);
    say("from the left %d", got);
    DO(Comm_free, 0, &graph);
}

int main(void)
{
    begin();
    grid();
    graphs();
    end();
    return 0;
}
