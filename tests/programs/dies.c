/* A ring in which rank 1 dies in the given way after the given number of turns. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int me, p, turns = atoi(argv[2]), x = 0;
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    for (int i = 0; i < turns; i++)
        MPI_Sendrecv_replace(&x, 1, MPI_INT, (me + 1) % p, 0, (me + p - 1) % p, 0,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (me == 1) {
        if (!strcmp(argv[1], "kill"))
            raise(SIGKILL);
        if (!strcmp(argv[1], "segv"))
            raise(SIGSEGV);
        if (!strcmp(argv[1], "_exit"))
            _exit(5);
        if (!strcmp(argv[1], "abort")) {
            fprintf(stderr, "cannot factor 7 ranks\n");
            MPI_Abort(MPI_COMM_WORLD, 9);
        }
        if (!strcmp(argv[1], "hang"))
            MPI_Recv(&x, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (!strcmp(argv[1], "exit") && me == 1)
        return 4;
    return 0;
}
