/* Opened by opened.c; counts its calls by the function it is given. */
#include <mpi.h>

int communicate(int (*called)(const char *op, long bytes, int rc))
{
    int rank, size, sum = 0, in;
    MPI_Request request;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 10; i++) {
        called("MPI_Irecv", 4, MPI_Irecv(&in, 1, MPI_INT, (rank + size - 1) % size, i,
                                         MPI_COMM_WORLD, &request));
        called("MPI_Send", 4, MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, i, MPI_COMM_WORLD));
        called("MPI_Wait", 1, MPI_Wait(&request, MPI_STATUS_IGNORE));
        sum += in;
    }
    called("MPI_Allreduce", 4,
           MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    return sum;
}
