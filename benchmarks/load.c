/* What load.py traces: `halo TURNS` exchanges with two neighbours and reduces; `long CALLS HOURS`
 * reduces so often in as many hours, by a clock of its own that each turn puts forward.
 *
 *     mpicc -O2 -rdynamic -o load load.c
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long passed_ns;

/* What is loaded with the program, the tracer too, asks this clock. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    long done = syscall(SYS_clock_gettime, id, now);
    long long ns = now->tv_nsec + passed_ns;
    now->tv_sec += ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return (int)done;
}

static void halo(int turns)
{
    int rank, size;
    double in[2][100], out[2][100] = {{0}}, sum, mine = 1;
    MPI_Request requests[4];
    MPI_Status statuses[4];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < turns; turn++) {
        int left = (rank + size - 1) % size, right = (rank + 1) % size;
        MPI_Irecv(in[0], 100, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(in[1], 100, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(out[0], 100, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(out[1], 100, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, statuses);
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void long_run(long long calls, double hours)
{
    double sum, mine = 1;
    long long step = (long long)(hours * 3600e9 / (double)calls);
    for (long long turn = 0; turn < calls; turn++) {
        passed_ns += step;
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc > 2 && strcmp(argv[1], "halo") == 0)
        halo(atoi(argv[2]));
    else if (argc > 3 && strcmp(argv[1], "long") == 0)
        long_run(atoll(argv[2]), atof(argv[3]));
    MPI_Finalize();
    return 0;
}
