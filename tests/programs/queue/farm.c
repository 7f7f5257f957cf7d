/* A master hands out tasks to whoever asked; arguments: tasks, least and largest length of a task in
 * microseconds of CPU time, service time at the master in microseconds. Each rank prints how many
 * tasks it did. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ASK = 1, TASK, STOP };

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void compute(double us)
{
    for (double end = cpu_us() + us; cpu_us() < end;)
        ;
}

static void serve(int tasks, int workers, double service)
{
    double result[16];
    MPI_Status from;
    for (int next = 0, left = workers; left;) {
        MPI_Recv(result, 16, MPI_DOUBLE, MPI_ANY_SOURCE, ASK, MPI_COMM_WORLD, &from);
        compute(service);
        if (next < tasks) {
            MPI_Send(&next, 1, MPI_INT, from.MPI_SOURCE, TASK, MPI_COMM_WORLD);
            next++;
        } else {
            MPI_Send(&next, 1, MPI_INT, from.MPI_SOURCE, STOP, MPI_COMM_WORLD);
            left--;
        }
    }
}

static int work(double least, double most)
{
    double result[16] = {0};
    int task, done = 0;
    MPI_Status status;
    for (;;) {
        MPI_Send(result, 16, MPI_DOUBLE, 0, ASK, MPI_COMM_WORLD);
        MPI_Recv(&task, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == STOP)
            return done;
        unsigned hash = (unsigned)task * 2654435761u >> 8;
        compute(least + (most - least) * (hash % 1000) / 1000.0);
        done++;
    }
}

int main(int argc, char **argv)
{
    int rank, size, done = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 0)
        serve(atoi(argv[1]), size - 1, atof(argv[4]));
    else
        done = work(atof(argv[2]), atof(argv[3]));
    printf("rank %d tasks %d\n", rank, done);
    MPI_Finalize();
    return 0;
}
