/* A program whose input decides how much it computes and which phases it has.
 *
 * workload SIZE TURNS [exchange|reduce|both|more] [COUNT]: a ring exchange with SIZE/np cells a
 * rank, an Allreduce with a computation of its own, both, or a third phase as well. It fails at
 * COUNT processes.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static double compute(long cells)
{
    volatile double sum = 0.0;
    for (long i = 0; i < 40 * cells; i++)
        sum = sum * 0.5 + (double)i;
    return sum;
}

static void exchange(long cells, int turns, int rank, int size)
{
    double *out = calloc((size_t)cells + 1, sizeof *out), *in = calloc((size_t)cells + 1, sizeof *in);
    for (int t = 0; t < turns; t++) {
        out[0] = compute(cells);
        MPI_Sendrecv(out, (int)cells, MPI_DOUBLE, (rank + 1) % size, 1, in, (int)cells, MPI_DOUBLE,
                     (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    free(out);
    free(in);
}

static void reduce(long cells, int turns)
{
    double mine, all;
    for (int t = 0; t < turns; t++) {
        mine = compute(cells);
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    long cells = atol(argv[1]);
    int turns = atoi(argv[2]);
    const char *what = argc > 3 ? argv[3] : "both";

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 4 && atoi(argv[4]) == size)
        MPI_Abort(MPI_COMM_WORLD, 3);
    cells /= size;
    if (strcmp(what, "reduce") != 0)
        exchange(cells, turns, rank, size);
    if (strcmp(what, "exchange") != 0)
        reduce(cells, turns);
    if (strcmp(what, "more") == 0)
        for (int t = 0; t < turns; t++) {
            compute(2 * cells);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    MPI_Finalize();
    return 0;
}
