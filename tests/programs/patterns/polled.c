/* A bordered row whose ranks test until what they wait for is there: polled [cells steps] */
#include "phases/phases.h"

static void poll(MPI_Request *q)
{
    for (int done = 0; !done;)
        MPI_Test(q, &done, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int cells = argument(argc, argv, 1, 403), steps = argument(argc, argv, 2, 5);
    int below = rank ? (cells + rank - 1) / size : 0, own = (cells + rank) / size;
    int *out = calloc(cells, sizeof *out), *in = calloc(cells, sizeof *in);
    for (int s = 0; s < steps; s++) {
        MPI_Request send, receive;
        if (rank > 0)
            MPI_Irecv(in, below, MPI_INT, rank - 1, s, MPI_COMM_WORLD, &receive);
        if (rank < size - 1)
            MPI_Isend(out, own, MPI_INT, rank + 1, s, MPI_COMM_WORLD, &send);
        if (rank > 0)
            poll(&receive);
        if (rank < size - 1)
            poll(&send);
        MPI_Reduce(out, in, 2, MPI_INT, MPI_SUM, size / 2, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
