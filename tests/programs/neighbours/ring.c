/* A ring as a distributed graph: MPI_Neighbor_allgather, and MPI_Ineighbor_alltoall around work. */
#include "tally.h"

enum { WHOLE = 6400, STEPS = 6 };

int main(int argc, char **argv)
{
    int n, me;
    MPI_Comm ring;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int around[2] = {(me + n - 1) % n, (me + 1) % n};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, around, MPI_UNWEIGHTED, 2, around,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    double *a = calloc(2 * WHOLE, sizeof *a), *b = calloc(2 * WHOLE, sizeof *b);
    for (int i = 0; i < STEPS; i++) {
        MPI_Request request;
        MPI_Neighbor_allgather(a, WHOLE / n, MPI_DOUBLE, b, WHOLE / n, MPI_DOUBLE, ring);
        MPI_Ineighbor_alltoall(a, 12, MPI_FLOAT, b, 12, MPI_FLOAT, ring, &request);
        work(a, 1 << 21 >> 4);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int k = 0; k < 2; k++) {
            sends(around[k], 8L * (WHOLE / n)), receives(around[k], 8L * (WHOLE / n));
            sends(around[k], 48), receives(around[k], 48);
        }
    }
    tell();
    MPI_Finalize();
    return 0;
}
