/* Several threads per rank communicate at once (MPI_THREAD_MULTIPLE); thread t of rank r sends
 * to thread t of the next rank. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, TURNS = 200 };
static int me, p;

static void *work(void *argument)
{
    int t = (int)(long)argument, x = 0;
    for (int i = 0; i < TURNS; i++) {
        MPI_Request r;
        MPI_Irecv(&x, 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : (me + p - 1) % p, t, MPI_COMM_WORLD,
                  &r);
        MPI_Send(&i, 1, MPI_INT, (me + 1) % p, t, MPI_COMM_WORLD);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        if (x != i)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return NULL;
}

int main(void)
{
    int provided;
    pthread_t threads[THREADS];
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    if (provided < MPI_THREAD_MULTIPLE) {
        if (me == 0)
            printf("no threads\n");
    } else {
        for (long t = 0; t < THREADS; t++)
            pthread_create(&threads[t], NULL, work, (void *)t);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
    }
    MPI_Finalize();
    return 0;
}
