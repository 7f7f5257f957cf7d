/* A bordered halo whose messages are used in the order of their arrival: waitany [steps] */
#include "phases.h"

enum { WORDS = 10 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 7);
    struct grid g = make_grid();
    double in[4][WORDS], out[4][WORDS] = {{0}}, sum = 0.0, all;
    int beside[4] = {neighbour(&g, 0, -1), neighbour(&g, 0, 1), neighbour(&g, 1, -1),
                     neighbour(&g, 1, 1)};
    for (int s = 0; s < steps; s++) {
        MPI_Request r[4];
        int n = 0, which;
        for (int d = 0; d < 4; d++)
            if (beside[d] != MPI_PROC_NULL)
                MPI_Irecv(in[d], WORDS, MPI_DOUBLE, beside[d], 0, MPI_COMM_WORLD, &r[n++]);
        for (int d = 0; d < 4; d++)
            if (beside[d] != MPI_PROC_NULL)
                MPI_Send(out[d], WORDS, MPI_DOUBLE, beside[d], 0, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            MPI_Waitany(n, r, &which, MPI_STATUS_IGNORE);
        MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
