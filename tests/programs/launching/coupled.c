/* One of two programs of a launch: rank 0, with WORKER 0, is the coupler of the others. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int me, size;
    double sent[10] = {0}, got[10];
    MPI_Comm mine;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, WORKER, me, &mine);
    for (int i = 0; i < 5; i++) {
        MPI_Allreduce(sent, got, 10, MPI_DOUBLE, MPI_SUM, mine);
        if (WORKER)
            MPI_Send(sent, 10, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
        for (int k = 1; !WORKER && k < size; k++)
            MPI_Recv(got, 10, MPI_DOUBLE, k, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&mine);
    MPI_Finalize();
    return 0;
}
