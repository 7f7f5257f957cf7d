/* Loops of known turns: OUTER steps of INNER shifts around the ring, a reduction in each step and
 * a barrier in every tenth; then a broadcast and a gather.
 *
 *   turns OUTER INNER [SIZE]
 *
 * At SIZE ranks the steps have no end. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int me, p, outer = atoi(argv[1]), inner = atoi(argv[2]), sum, all[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    if (argc > 3 && p == atoi(argv[3]))
        outer = 2000000000;
    for (int step = 0; step < outer; step++) {
        for (int turn = 0; turn < inner; turn++) {
            int in, from = (me + p - 1) % p;
            MPI_Sendrecv(&turn, 1, MPI_INT, (me + 1) % p, 0, &in, 1, MPI_INT,
                         turn % 2 ? from : MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (step % 10 == 5)
            MPI_Barrier(MPI_COMM_WORLD);
        MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Gather(&sum, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
