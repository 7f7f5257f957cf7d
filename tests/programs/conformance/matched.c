/* Matched probes: MPI_Mprobe, MPI_Improbe, MPI_Mrecv, MPI_Imrecv, also of MPI_ANY_SOURCE. */
#include "conform.h"

int main(void)
{
    int out[8], in[8] = {0}, flag, n;
    MPI_Message message;
    MPI_Status status;
    MPI_Request requests[4], request;
    MPI_Comm w = MPI_COMM_WORLD;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    for (int i = 0; i < 8; i++)
        out[i] = me * 8 + i;
    for (int i = 0; i < 4; i++)
        DO(Isend, 4 * (i + 2), out, i + 2, MPI_INT, right, i, w, &requests[i]);
    DO(Mprobe, 1, left, 1, w, &message, &status);
    say_found("Mprobe", &status, MPI_INT);
    MPI_Get_count(&status, MPI_INT, &n);
    DO(Mrecv, 4 * n, in, n, MPI_INT, &message, &status);
    say_status("Mrecv", &status, MPI_INT);
    DO(Mprobe, 1, MPI_ANY_SOURCE, 2, w, &message, MPI_STATUS_IGNORE);
    DO(Imrecv, 32, in, 8, MPI_INT, &message, &request);
    say("message gone %d", message == MPI_MESSAGE_NULL);
    DONE(Wait, 1, &request, &status);
    say_status("Imrecv", &status, MPI_INT);
    POLL(Improbe, 1, flag, left, MPI_ANY_TAG, w, &flag, &message, &status);
    say_found("Improbe", &status, MPI_INT);
    DO(Mrecv, 32, in, 8, MPI_INT, &message, MPI_STATUS_IGNORE);
    POLL(Improbe, 1, flag, left, 3, w, &flag, &message, MPI_STATUS_IGNORE);
    DO(Mrecv, 32, in, 8, MPI_INT, &message, &status);
    say_status("last", &status, MPI_INT);
    say("%lx", checksum(in, 20));
    DONE(Waitall, 4, 4, requests, MPI_STATUSES_IGNORE);
    end();
    return 0;
}
