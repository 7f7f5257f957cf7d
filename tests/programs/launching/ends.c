/* Twenty reductions, then an end without MPI_Finalize: of exit, of _exit, of MPI_Abort, or a crash. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int me;
    double x = 1, sum;
    char how = argv[argc - 1][0];
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int i = 0; i < 20; i++)
        MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (how == 'e')
        exit(0);
    if (how == '_')
        _exit(0);
    if (how == 'a')
        MPI_Abort(MPI_COMM_WORLD, 0);
    if (how == 'x' && me == 0)
        exit(3);
    MPI_Barrier(MPI_COMM_WORLD);
    exit(0);
}
