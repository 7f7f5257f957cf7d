/* MPI_Pcontrol(0) stops the recording, MPI_Pcontrol(1) resumes it: only what is done between is
 * not counted. Requests and communicators made while it is off are used when it is on. */
#include "conform.h"

int main(void)
{
    int value = 0, sum;
    MPI_Request request, early;
    MPI_Comm comm;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    DO(Allreduce, 4, &me, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    DO(Irecv, 4, &value, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &early);
    MPI_Pcontrol(0);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 10; i++)
        MPI_Barrier(comm);
    MPI_Send(&me, 1, MPI_INT, right, 1, MPI_COMM_WORLD);
    MPI_Irecv(&sum, 1, MPI_INT, left, 2, comm, &request);
    MPI_Pcontrol(0);
    MPI_Barrier(comm);
    MPI_Pcontrol(1);
    DONE(Wait, 1, &early, MPI_STATUS_IGNORE);
    DO(Send, 4, &me, 1, MPI_INT, right, 2, comm);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    DO(Barrier, 0, comm);
    MPI_Pcontrol(1);
    DO(Barrier, 0, comm);
    MPI_Pcontrol(0);
    MPI_Barrier(comm);
    MPI_Pcontrol(1);
    DO(Comm_free, 0, &comm);
    say("%d %d", value, sum);
    end();
    return 0;
}
