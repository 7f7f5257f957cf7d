/* Many calls right after each other, then some work of the processor's own: prints its CPU time in ns. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1000000000LL * t.tv_sec + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 10;
    volatile double value = 1;
    MPI_Init(&argc, &argv);
    long long begin = cpu_ns();
    for (long i = 0; i < calls; i++)
        MPI_Send(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    long long work = cpu_ns();
    while (cpu_ns() - work < 50000000)
        for (int i = 0; i < 1000; i++)
            value = value * 1.0000001;
    MPI_Send(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    printf("%lld\n", cpu_ns() - begin);
    MPI_Finalize();
    return 0;
}
