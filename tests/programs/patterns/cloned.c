/* Sweeps up a column, called after what the root alone does at the start and every third
   time; -O2 makes two calls of one: cloned [lines steps more] */
#include "phases/phases.h"

static struct grid g;
static double line[512];
static int lines, more, reports;

static __attribute__((noinline)) void report(int step) { reports += step; }

static __attribute__((noinline)) void sweep(int length)
{
    int up = neighbour(&g, 0, 1), down = neighbour(&g, 0, -1);
    for (int block = 0; block < g.extent[1] + more; block++) {
        if (down != MPI_PROC_NULL)
            MPI_Recv(line, length, MPI_DOUBLE, down, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (up != MPI_PROC_NULL)
            MPI_Send(line, length, MPI_DOUBLE, up, 1, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 2, 8), node = rank, root = 0;
    lines = argument(argc, argv, 1, 40);
    more = argument(argc, argv, 3, 0);
    g = make_grid();
    for (int s = 0; s < steps; s++) {
        if (node == root)
            if (s % 3 == 0 || s == steps - 1)
                report(s);
        sweep(lines);
        if (node == root)
            report(-s);
    }
    MPI_Allreduce(MPI_IN_PLACE, line, lines, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return reports > 1000;
}
