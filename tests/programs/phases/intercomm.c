/* Pings between two halves over an intercommunicator, an odd rank stays out: intercomm [turns] */
#include "phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int turns = argument(argc, argv, 1, 11), half = size / 2;
    int side = rank < half ? 0 : rank < 2 * half ? 1 : MPI_UNDEFINED;
    double word = 0.0;
    MPI_Comm mine, other;
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &mine);
    if (side != MPI_UNDEFINED) {
        MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, side == 0 ? half : 0, 0, &other);
        for (int t = 0; t < turns; t++) {
            if (side == 0) {
                MPI_Send(&word, 1, MPI_DOUBLE, rank, 0, other);
                MPI_Recv(&word, 1, MPI_DOUBLE, rank, 0, other, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(&word, 1, MPI_DOUBLE, rank - half, 0, other, MPI_STATUS_IGNORE);
                MPI_Send(&word, 1, MPI_DOUBLE, rank - half, 0, other);
            }
        }
        MPI_Comm_free(&other);
        MPI_Comm_free(&mine);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
