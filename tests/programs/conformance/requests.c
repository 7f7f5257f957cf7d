/* Requests that are freed while active, looked at without completing, and duplicated handles. */
#include "conform.h"

int main(void)
{
    int out[4] = {0}, in[4] = {0}, flag;
    MPI_Request request, persistent;
    MPI_Status status;
    MPI_Comm w = MPI_COMM_WORLD;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    for (int i = 0; i < 4; i++)
        out[i] = me + i;
    for (int turn = 0; turn < 10; turn++) {
        DO(Irecv, 16, in, 4, MPI_INT, turn % 2 ? left : MPI_ANY_SOURCE, turn, w, &request);
        MPI_Request send;
        DO(Isend, 16, out, 4, MPI_INT, right, turn, w, &send);
        MPI_Request_free(&send); /* its completion is never seen */
        do { /* found but not completed: no event, and no failed poll */
            MPI_Request_get_status(request, &flag, &status);
            polls += !flag;
        } while (!flag);
        say_status("looked at", &status, MPI_INT);
        DONE(Wait, 1, &request, &status);
        say("%d %d", in[0], status.MPI_SOURCE == left);
    }
    MPI_Request_get_status(request, &flag, &status); /* a null request is complete */
    say("null %d", flag);
    /* An active persistent receive is freed after its message has been taken. */
    MPI_Recv_init(in, 4, MPI_INT, MPI_ANY_SOURCE, 50, w, &persistent);
    MPI_Start(&persistent);
    count("MPI_Recv_init", 16);
    DO(Send, 16, out, 4, MPI_INT, right, 50, w);
    DONE(Wait, 1, &persistent, &status);
    say_status("persistent", &status, MPI_INT);
    MPI_Request_free(&persistent);
    say("freed %d", persistent == MPI_REQUEST_NULL);
    DO(Barrier, 0, w);
    end();
    return 0;
}
