/* One rank ends in the given way while the others wait in MPI_Barrier. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int me;
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == atoi(argv[2])) {
        sleep(1); /* the others are inside MPI by then */
        if (!strcmp(argv[1], "exit"))
            exit(5);
        if (!strcmp(argv[1], "abort"))
            abort();
        raise(!strcmp(argv[1], "kill") ? SIGKILL : SIGSEGV);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
