/* A clock that stands still for 1 ms now and then, as for a process that has lost its core. The
 * system says that it had ("lost"), or that nobody else ran ("alone"). Usage: lost_core HOW */
#define _GNU_SOURCE
#include <mpi.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long asked, gone, begun, lost;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result || clock != CLOCK_MONOTONIC || !begun)
        return result;
    if (++asked % 7 == 0)
        gone++;
    long ns = now->tv_nsec + gone * 1000000;
    now->tv_sec += ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return 0;
}

int getrusage(__rusage_who_t who, struct rusage *usage)
{
    int result = (int)syscall(SYS_getrusage, who, usage);
    usage->ru_nivcsw = begun && lost ? gone : 0;
    return result;
}

int main(int argc, char **argv)
{
    int rank, flag;
    MPI_Init(&argc, &argv);
    lost = argc > 1 && !strcmp(argv[1], "lost");
    begun = 1;
    for (int i = 0; i < 1000; i++) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Sendrecv(&i, 1, MPI_INT, rank, 0, &flag, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
