/* MPI_Graph_create: a ring with a chord to the opposite rank; allgatherv, so that all get the same. */
#include "tally.h"

enum { STEPS = 5 };

int main(int argc, char **argv)
{
    int n, me, counts[3], where[3] = {0, 5760, 11520};
    MPI_Comm graph;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int *index = calloc(n, sizeof *index), *edges = calloc(3 * n, sizeof *edges);
    for (int r = 0; r < n; r++) {
        index[r] = 3 * (r + 1);
        edges[3 * r] = (r + n - 1) % n;
        edges[3 * r + 1] = (r + 1) % n;
        edges[3 * r + 2] = (r + n / 2) % n;
    }
    MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 0, &graph);
    static double a[5760], b[17280];
    for (int k = 0; k < 3; k++)
        counts[k] = 5760 / n;
    for (int i = 0; i < STEPS; i++) {
        work(a, 40000);
        MPI_Neighbor_allgatherv(a, counts[0], MPI_FLOAT, b, counts, where, MPI_FLOAT, graph);
        for (int k = 0; k < 3; k++) {
            long bytes = 4L * counts[k];
            sends(edges[3 * me + k], bytes), receives(edges[3 * me + k], bytes);
        }
    }
    tell();
    MPI_Finalize();
    return 0;
}
