/* MPI calls from threads: the first thread of a region alone (funneled), one at a time (serialized), all
 * of them at once (multiple). The level is asked for by the first argument; the second says how many
 * calls each makes. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, other;

static void exchange(int tag)
{
    int to = me, from = -1;
    MPI_Sendrecv(&to, 1, MPI_INT, other, tag, &from, 1, MPI_INT, other, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (from != other)
        MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char **argv)
{
    const char *levels[] = {"single", "funneled", "serialized", "multiple"};
    int required = 0, provided, calls = atoi(argv[2]), regions = argc > 3 ? atoi(argv[3]) : 1;
    while (strcmp(levels[required], argv[1]))
        required++;
    const int level[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                         MPI_THREAD_MULTIPLE};
    MPI_Init_thread(&argc, &argv, level[required], &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    other = 1 - me;
    if (provided < level[required]) {
        if (me == 0)
            printf("not provided\n");
    } else if (required == 1) {
        #pragma omp parallel
        for (int i = 0; i < calls; i++) {
            #pragma omp master
            exchange(0);
            #pragma omp barrier
        }
    } else if (required == 2) {
        #pragma omp parallel
        for (int i = 0; i < calls; i++) {
            #pragma omp for ordered schedule(static, 1)
            for (int t = 0; t < omp_get_num_threads(); t++) {
                #pragma omp ordered
                exchange(t);
            }
        }
    } else {
        for (int region = 0; region < regions; region++) {
            #pragma omp parallel
            for (int i = 0; i < calls; i++)
                exchange(omp_get_thread_num());
        }
    }
    exchange(99);
    MPI_Finalize();
    return 0;
}
