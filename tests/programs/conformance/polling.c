/* Polls that find nothing are counted one by one, and no events: each kind a known number of
 * times before anything is sent, and then until it finds something. */
#include "conform.h"

int main(void)
{
    int value = 0, flag = 1, index, n, indices[2];
    MPI_Message message;
    MPI_Request requests[2], request;
    MPI_Status status;
    MPI_Comm w = MPI_COMM_WORLD;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    DO(Irecv, 4, &value, 1, MPI_INT, left, 1, w, &requests[0]);
    DO(Irecv, 4, &indices[1], 1, MPI_INT, MPI_ANY_SOURCE, 2, w, &requests[1]);
    for (int i = 0; i < 25; i++) {
        MPI_Iprobe(left, 7, w, &flag, &status);
        polls += !flag;
        MPI_Improbe(MPI_ANY_SOURCE, 7, w, &flag, &message, MPI_STATUS_IGNORE);
        polls += !flag;
        MPI_Test(&requests[0], &flag, &status);
        polls += !flag;
        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        polls += !flag;
        MPI_Testany(2, requests, &index, &flag, &status);
        polls += !flag;
        MPI_Testsome(2, requests, &n, indices, MPI_STATUSES_IGNORE);
        polls += !n;
        MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE);
        polls += !flag;
    }
    say("polls that found nothing: %ld", polls);
    DO(Barrier, 0, w);
    int mine = me * 11;
    DO(Send, 4, &mine, 1, MPI_INT, right, 1, w);
    DO(Send, 4, &mine, 1, MPI_INT, right, 2, w);
    DO(Isend, 4, &mine, 1, MPI_INT, right, 7, w, &request);
    POLL(Testall, 2, flag, 2, requests, &flag, MPI_STATUSES_IGNORE);
    POLL(Iprobe, 1, flag, MPI_ANY_SOURCE, MPI_ANY_TAG, w, &flag, &status);
    say_found("Iprobe", &status, MPI_INT);
    DO(Recv, 4, &n, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, w, &status);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    say("%d %d %d", value, indices[1], n);
    end();
    return 0;
}
