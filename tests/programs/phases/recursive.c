/* Multigrid V-cycles by recursion over levels: recursive [cycles]
 *
 * Level l has every 2^l-th rank, down to two ranks at least. A rank hands its part to the one that
 * stays (restriction) and waits for the answer (prolongation).
 */
#include "phases.h"

enum { WORDS = 16 };

static void smooth(int l)
{
    static double in[2][WORDS], out[2][WORDS];
    int working = (size + (1 << l) - 1) >> l, place = rank >> l;
    int left = ((place + working - 1) % working) << l, right = ((place + 1) % working) << l;
    MPI_Request r[4];
    MPI_Irecv(in[0], WORDS, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(in[1], WORDS, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &r[1]);
    MPI_Isend(out[0], WORDS, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &r[2]);
    MPI_Isend(out[1], WORDS, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &r[3]);
    MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
}

static void restriction(int l)
{
    double part[WORDS] = {0};
    int other = 1 << l;
    if (rank % (2 * other))
        MPI_Send(part, WORDS, MPI_DOUBLE, rank - other, 2, MPI_COMM_WORLD);
    else if (rank + other < size)
        MPI_Recv(part, WORDS, MPI_DOUBLE, rank + other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void prolongation(int l)
{
    double part[WORDS] = {0};
    int other = 1 << l;
    if (rank % (2 * other))
        MPI_Recv(part, WORDS, MPI_DOUBLE, rank - other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (rank + other < size)
        MPI_Send(part, WORDS, MPI_DOUBLE, rank + other, 3, MPI_COMM_WORLD);
}

static void cycle(int l, int levels)
{
    if (l == levels || rank % (1 << l))
        return;
    smooth(l);
    restriction(l);
    cycle(l + 1, levels);
    prolongation(l);
    smooth(l);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int cycles = argument(argc, argv, 1, 5), levels = 0;
    while (1 << levels < size)
        levels++;
    double norm = 1.0, all;
    for (int c = 0; c < cycles; c++) {
        cycle(0, levels);
        MPI_Allreduce(&norm, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
