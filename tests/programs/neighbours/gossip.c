/* A distributed graph whose neighbours in and out differ: every rank tells the one after it and the
 * one seven further, with another size to each, through a duplicate of the communicator, too. */
#include "tally.h"

enum { WHOLE = 9600, STEPS = 5, NEAR = 1, FAR = 7 };

int main(int argc, char **argv)
{
    int n, me;
    MPI_Comm graph, twin;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int to[2] = {(me + FAR) % n, (me + NEAR) % n};
    int from[2] = {(me + NEAR * (n - 1)) % n, (me + FAR * (n - 1)) % n};
    int sent[2] = {250, WHOLE / n}, got[2] = {WHOLE / n, 250}, where[2] = {0, WHOLE};
    if (from[0] == from[1]) /* of two edges between two processes the first meets the first */
        got[0] = sent[0], got[1] = sent[1];
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    MPI_Comm_dup(graph, &twin);
    double *a = calloc(2 * WHOLE, sizeof *a), *b = calloc(2 * WHOLE, sizeof *b);
    for (int i = 0; i < STEPS; i++) {
        work(a, 40000);
        MPI_Neighbor_alltoallv(a, sent, where, MPI_FLOAT, b, got, where, MPI_FLOAT, graph);
        MPI_Neighbor_alltoall(a, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, twin);
        for (int k = 0; k < 2; k++) {
            sends(to[k], 4L * sent[k]), receives(from[k], 4L * got[k]);
            sends(to[k], 24), receives(from[k], 24);
        }
    }
    tell();
    MPI_Comm_free(&twin);
    MPI_Comm_free(&graph);
    MPI_Finalize();
    return 0;
}
