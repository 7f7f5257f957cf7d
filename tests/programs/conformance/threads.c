/* Four threads of each rank call MPI at the same time, each over a communicator of its own and
 * with a tag of its own over a common one. */
#include "conform.h"

enum { THREADS = 4, TURNS = 100 };

static MPI_Comm own[THREADS];
static int sums[THREADS];

static void *work(void *number)
{
    int t = (int)(long)number, right = (me + 1) % p, left = (me + p - 1) % p, value, in;
    MPI_Request request;
    MPI_Status status;
    for (int turn = 0; turn < TURNS; turn++) {
        value = me + turn * t;
        DO(Irecv, 4, &in, 1, MPI_INT, t % 2 ? left : MPI_ANY_SOURCE, t, MPI_COMM_WORLD, &request);
        DO(Send, 4, &value, 1, MPI_INT, right, t, MPI_COMM_WORLD);
        DONE(Wait, 1, &request, t < 2 ? &status : MPI_STATUS_IGNORE);
        sums[t] += in;
        if (turn % 10 == 0) {
            DO(Allreduce, 4, &value, &in, 1, MPI_INT, MPI_SUM, own[t]);
            sums[t] += in;
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    start_counting();
    say("threads %d", provided == MPI_THREAD_MULTIPLE);
    for (int t = 0; t < THREADS; t++)
        DO(Comm_dup, 0, MPI_COMM_WORLD, &own[t]);
    for (long t = 0; t < THREADS; t++) {
        if (provided != MPI_THREAD_MULTIPLE)
            work((void *)t);
        else if (pthread_create(&threads[t], NULL, work, (void *)t))
            MPI_Abort(MPI_COMM_WORLD, 4);
    }
    for (int t = 0; t < THREADS; t++) {
        if (provided == MPI_THREAD_MULTIPLE)
            pthread_join(threads[t], NULL);
        say("thread %d: %d", t, sums[t]);
        DO(Comm_free, 0, &own[t]);
    }
    end();
    return 0;
}
