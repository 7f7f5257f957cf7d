/* Persistent collectives: MPI_Allreduce_init and MPI_Bcast_init. */
#include "tally.h"

enum { STEPS = 6 };

int main(int argc, char **argv)
{
    int n;
    static double a[1024], b[1024];
    MPI_Request sum, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Allreduce_init(a, b, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &sum);
    MPI_Bcast_init(a, 1000 / n, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &all);
    for (int i = 0; i < STEPS; i++) {
        MPI_Start(&all);
        work(b, 100000);
        MPI_Wait(&all, MPI_STATUS_IGNORE);
        MPI_Start(&sum);
        MPI_Wait(&sum, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&sum);
    MPI_Request_free(&all);
    tell();
    MPI_Finalize();
    return 0;
}
