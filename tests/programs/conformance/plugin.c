/* Opened by plugin_host.c. */
#include "conform.h"

int run(void)
{
    int value, sum;
    MPI_Status status;
    MPI_Request request;
    begin();
    for (int i = 0; i < 5; i++) {
        DO(Irecv, 4, &value, 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &request);
        DO(Send, 4, &me, 1, MPI_INT, (me + 1) % p, i, MPI_COMM_WORLD);
        DONE(Wait, 1, &request, &status);
        say_status("from", &status, MPI_INT);
    }
    DO(Allreduce, 4, &me, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("sum %d", sum);
    end();
    return 0;
}
