/* Threads compute known shares of CPU time between MPI calls. */
#include <mpi.h>
#include <omp.h>
#include <time.h>

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compute(int shares)
{
    double begin = cpu_s();
    while (cpu_s() - begin < 0.01 * shares) {
    }
}

/* Return when two tasks have begun, asleep: a thread that comes late must not find both done. */
static void with_another(int *begun)
{
    const struct timespec wait = {0, 1000000};
    __atomic_add_fetch(begun, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 60000 && __atomic_load_n(begun, __ATOMIC_SEQ_CST) < 2; i++)
        nanosleep(&wait, NULL);
}

int main(int argc, char **argv)
{
    int level, begun = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Barrier(MPI_COMM_WORLD);
    compute(1);
    MPI_Barrier(MPI_COMM_WORLD);        /* one alone */
    #pragma omp parallel num_threads(3)
    compute(1);
    MPI_Barrier(MPI_COMM_WORLD);        /* three, one each */
    #pragma omp parallel num_threads(3)
    compute(1 + omp_get_thread_num());
    MPI_Barrier(MPI_COMM_WORLD);        /* 1, 2, 3 */
    compute(1);
    #pragma omp parallel num_threads(3)
    {
        if (omp_get_thread_num() == 1)
            compute(3);
        #pragma omp barrier
        if (omp_get_thread_num() == 0)
            compute(3);
    }
    MPI_Barrier(MPI_COMM_WORLD);        /* one, then 3 and 3 by two threads: 1 + 3 */
    #pragma omp parallel num_threads(2)
    {
        #pragma omp single nowait
        for (int i = 0; i < 2; i++) {
            #pragma omp task shared(begun)
            {
                with_another(&begun);
                compute(3);
            }
        }
    }
    compute(1);
    MPI_Barrier(MPI_COMM_WORLD);        /* two tasks of 3, one for each thread, then one */
    omp_set_max_active_levels(2);
    #pragma omp parallel num_threads(2)
    {
        if (omp_get_thread_num() == 0) {
            #pragma omp parallel num_threads(2)
            compute(1 + omp_get_thread_num());
        } else {
            compute(3);
        }
        if (omp_get_thread_num() == 0) {
            #pragma omp parallel num_threads(3)
            compute(1);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);        /* 3 beside regions of 1, 2 and of 1, 1, 1: 3 */
    MPI_Finalize();
    return 0;
}
