/* Rank 0 hears from all others, whoever comes first: heard COUNT. At COUNT processes the last rank
 * comes first, else the first one. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int size, rank;
    double part[8] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int late = size == atoi(argv[1]) ? size - rank : rank;
    for (int step = 0; step < 5; step++) {
        if (rank) {
            usleep(20000 * late);
            MPI_Send(part, 8, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
        }
        for (int other = 1; !rank && other < size; other++)
            MPI_Recv(part, 8, MPI_DOUBLE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
