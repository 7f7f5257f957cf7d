/* The nine-point stencil of a 2-D grid with an edge, as a distributed graph: ranks at the border have
 * fewer neighbours. Sizes differ between sides and corners. */
#include "tally.h"

enum { NX = 192, NY = 96, STEPS = 5 };

int main(int argc, char **argv)
{
    int n, me, dims[2] = {0, 0}, around = 0, to[8], size[8], where[8];
    MPI_Comm graph;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Dims_create(n, 2, dims);
    int x = me / dims[1], y = me % dims[1];
    for (int i = x - 1; i <= x + 1; i++)
        for (int j = y - 1; j <= y + 1; j++) {
            if ((i == x && j == y) || i < 0 || j < 0 || i >= dims[0] || j >= dims[1])
                continue;
            to[around] = i * dims[1] + j;
            size[around] = i == x ? NX / dims[0] : j == y ? NY / dims[1] : 1;
            where[around] = (NX + NY) * around;
            around++;
        }
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &me, &around, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                          &graph);
    /* The library may have its own order of the neighbours. */
    int from[8], into[8], weights[8], back[8];
    MPI_Dist_graph_neighbors(graph, around, from, weights, around, into, weights);
    int sent[8];
    for (int k = 0; k < around; k++)
        for (int j = 0; j < around; j++) {
            if (to[j] == into[k])
                sent[k] = size[j];
            if (to[j] == from[k])
                back[k] = size[j];
        }
    double *a = calloc(8 * (NX + NY), sizeof *a), *b = calloc(8 * (NX + NY), sizeof *b);
    for (int i = 0; i < STEPS; i++) {
        work(a, NX * NY / n * 10);
        MPI_Neighbor_alltoallv(a, sent, where, MPI_DOUBLE, b, back, where, MPI_DOUBLE, graph);
        for (int k = 0; k < around; k++)
            sends(to[k], 8L * size[k]), receives(to[k], 8L * size[k]);
    }
    tell();
    MPI_Finalize();
    return 0;
}
