/* Makes more events than its file size limit has room for, and must not notice. */
#include <mpi.h>
#include <stdio.h>
#include <sys/resource.h>

int main(void)
{
    struct rlimit limit = {150 * 1024, 150 * 1024};
    int rank, x, sum = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 30000; i++) {
        x = i;
        MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
        sum += x;
    }
    if (rank == 0)
        printf("sum %d\n", sum);
    MPI_Finalize();
    return 0;
}
