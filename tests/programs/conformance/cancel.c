/* Cancelled receives: of a rank, of any rank, persistent, completed alone and among others. */
#include "conform.h"

int main(void)
{
    int value[3], cancelled;
    MPI_Request requests[3], request;
    MPI_Status status, statuses[3];
    MPI_Comm w = MPI_COMM_WORLD;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    DO(Irecv, 4, value, 1, MPI_INT, left, 1, w, &request);
    MPI_Cancel(&request);
    DONE(Wait, 1, &request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    say("Wait: cancelled %d", cancelled);
    DO(Irecv, 4, value, 1, MPI_INT, MPI_ANY_SOURCE, 1, w, &request);
    MPI_Cancel(&request);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    MPI_Recv_init(value, 1, MPI_INT, MPI_ANY_SOURCE, 1, w, &request);
    MPI_Start(&request);
    count("MPI_Recv_init", 4);
    MPI_Cancel(&request);
    DONE(Wait, 1, &request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    say("persistent: cancelled %d", cancelled);
    DO(Barrier, 0, w);
    MPI_Start(&request); /* and once more, to its end */
    count("MPI_Recv_init", 4);
    DO(Send, 4, &me, 1, MPI_INT, right, 1, w);
    DONE(Wait, 1, &request, &status);
    say_status("persistent", &status, MPI_INT);
    MPI_Request_free(&request);
    for (int i = 0; i < 3; i++)
        DO(Irecv, 4, &value[i], 1, MPI_INT, i == 1 ? MPI_ANY_SOURCE : left, 10 + i, w,
           &requests[i]);
    MPI_Cancel(&requests[0]);
    MPI_Cancel(&requests[1]);
    DO(Send, 4, &me, 1, MPI_INT, right, 12, w);
    DONE(Waitall, 3, 3, requests, statuses);
    for (int i = 0; i < 3; i++) {
        MPI_Test_cancelled(&statuses[i], &cancelled);
        say("Waitall %d: cancelled %d", i, cancelled);
    }
    say_status("the other", &statuses[2], MPI_INT);
    end();
    return 0;
}
