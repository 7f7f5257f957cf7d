/* What a parallel region costs: an empty one, one with a barrier, one with some work. Batches of
 * regions are timed; the quickest is printed, in nanoseconds a region: other processes only add. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 20, LONGEST_S = 1 };
static volatile double sink;

static void work(int n)
{
    double s = 0;
    for (int i = 1; i <= n; i++)
        s += 1.0 / i;
    sink = s;
}

static void batch(int kind, int n)
{
    for (int i = 0; i < BATCH; i++)
        if (kind == 0) {
            #pragma omp parallel
            sink = 1;
        } else if (kind == 1) {
            #pragma omp parallel
            {
                sink = 1;
                #pragma omp barrier
                sink = 2;
            }
        } else {
            #pragma omp parallel
            work(n);
        }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"empty", "barrier", "work"};
    int level, batches = argc > 1 ? atoi(argv[1]) : 100, n = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    for (int kind = 0; kind < 3; kind++) {
        double least = 1e9, until = MPI_Wtime() + LONGEST_S;
        for (int i = 0; i < batches && (i < 3 || MPI_Wtime() < until); i++) {
            double begin = MPI_Wtime();
            batch(kind, n);
            double took = MPI_Wtime() - begin;
            least = took < least ? took : least;
        }
        printf("%s %.1f ", names[kind], least / BATCH * 1e9);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    printf("\n");
    MPI_Finalize();
    return 0;
}
