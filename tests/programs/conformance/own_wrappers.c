/* A program with its own profiling wrappers, which count and call PMPI: they see what they see
 * without a tracer, and the tracer sees every call once. With WRAPPERS_ELSEWHERE they are in a
 * shared library linked before the MPI library. */
#include "conform.h"

long wrapped_calls(void);

#ifndef WRAPPERS_ELSEWHERE
#include "wrappers.c"
#endif

int main(void)
{
    int value = 3, in;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Request request;
    for (int i = 0; i < 5; i++) {
        DO(Irecv, 4, &in, 1, MPI_INT, left, i, MPI_COMM_WORLD, &request);
        DO(Send, 4, &value, 1, MPI_INT, right, i, MPI_COMM_WORLD);
        DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    }
    DO(Allreduce, 4, MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("value %d, own wrappers saw %ld", value, wrapped_calls());
    end();
    return 0;
}
