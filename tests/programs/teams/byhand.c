/* Threads made by hand between MPI calls: thread k of a segment computes k + 1 shares while the first
 * thread waits for them, or computes too. A share is so much CPU time. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static const double share_s = 0.02;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *compute(void *shares)
{
    double begin = cpu_s();
    while (cpu_s() - begin < share_s * (double)(long)shares) {
    }
    return NULL;
}

static void with_threads(long n, long own)
{
    pthread_t threads[8];
    for (long t = 0; t < n; t++)
        pthread_create(&threads[t], NULL, compute, (void *)(t + 1));
    compute((void *)own);
    for (long t = 0; t < n; t++)
        pthread_join(threads[t], NULL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    with_threads(0, 1);
    MPI_Barrier(MPI_COMM_WORLD);        /* alone: one share */
    with_threads(1, 0);
    MPI_Barrier(MPI_COMM_WORLD);        /* waits for one of one share */
    with_threads(3, 0);
    MPI_Barrier(MPI_COMM_WORLD);        /* for three, of 1 + 2 + 3 */
    with_threads(2, 4);
    MPI_Barrier(MPI_COMM_WORLD);        /* computes most itself */
    for (int i = 0; i < 5; i++)
        with_threads(1, 0);
    MPI_Barrier(MPI_COMM_WORLD);        /* five, one after the other */
    MPI_Finalize();
    return 0;
}
