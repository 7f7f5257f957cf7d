/* Even rows post and wait; odd rows send; ranks of the last column do neither: idle [words steps] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int words = argument(argc, argv, 1, 12), steps = argument(argc, argv, 2, 7);
    struct grid g = make_grid();
    int last = g.at[1] == g.extent[1] - 1, even = g.at[0] % 2 == 0;
    double *data = calloc(2 * words, sizeof *data);
    for (int s = 0; s < steps; s++) {
        MPI_Request q[2];
        int m = 0;
        for (int side = -1; side <= 1; side += 2) {
            int there = neighbour(&g, 0, side);
            if (there == MPI_PROC_NULL || last)
                continue;
            if (even)
                MPI_Irecv(data + m * words, words, MPI_DOUBLE, there, 0, MPI_COMM_WORLD, &q[m]), m++;
            else
                MPI_Send(data, words, MPI_DOUBLE, there, 0, MPI_COMM_WORLD);
        }
        if (m)
            MPI_Waitall(m, q, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
