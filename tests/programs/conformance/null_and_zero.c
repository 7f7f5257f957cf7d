/* MPI_PROC_NULL, zero counts, null requests: the statuses and indices they give. */
#include "conform.h"

static void say_empty(const char *what, MPI_Status *status)
{
    int n;
    MPI_Get_count(status, MPI_INT, &n);
    say("%s: any source %d, null %d, any tag %d, count %d", what,
        status->MPI_SOURCE == MPI_ANY_SOURCE, status->MPI_SOURCE == MPI_PROC_NULL,
        status->MPI_TAG == MPI_ANY_TAG, n);
}

int main(void)
{
    int value = 17, flag, index = 5, outcount = 5, indices[2];
    MPI_Status status, statuses[2];
    MPI_Request request, requests[2];
    MPI_Message message;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Comm w = MPI_COMM_WORLD;
    DO(Send, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w);
    DO(Ssend, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w);
    DO(Rsend, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w);
    DO(Bsend, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w);
    DO(Recv, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w, &status);
    say_empty("Recv", &status);
    DO(Recv, 4, &value, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, w, MPI_STATUS_IGNORE);
    DO(Irecv, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w, &request);
    DONE(Wait, 1, &request, &status);
    say_empty("Irecv", &status);
    DO(Isend, 4, &value, 1, MPI_INT, MPI_PROC_NULL, 1, w, &request);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    DO(Probe, 1, MPI_PROC_NULL, 1, w, &status);
    say_empty("Probe", &status);
    DO(Iprobe, 1, MPI_PROC_NULL, 1, w, &flag, &status);
    say_empty("Iprobe", &status);
    DO(Mprobe, 1, MPI_PROC_NULL, 1, w, &message, &status);
    say("no proc %d", message == MPI_MESSAGE_NO_PROC);
    DO(Mrecv, 4, &value, 1, MPI_INT, &message, &status);
    say_empty("Mrecv", &status);
    say("value %d", value);

    request = MPI_REQUEST_NULL;
    requests[0] = requests[1] = MPI_REQUEST_NULL;
    DONE(Wait, 0, &request, &status);
    say_empty("Wait", &status);
    DONE(Test, 0, &request, &flag, &status);
    say_empty("Test", &status);
    DONE(Waitall, 0, 2, requests, statuses);
    say_empty("Waitall", &statuses[1]);
    DONE(Waitall, 0, 0, NULL, MPI_STATUSES_IGNORE);
    DONE(Testall, 0, 2, requests, &flag, statuses);
    say("Testall %d", flag);
    DONE(Waitany, 0, 2, requests, &index, &status);
    say("Waitany %d", index == MPI_UNDEFINED);
    say_empty("Waitany", &status);
    DONE(Testany, 0, 2, requests, &index, &flag, &status);
    say("Testany %d %d", flag, index == MPI_UNDEFINED);
    DONE(Waitsome, 0, 2, requests, &outcount, indices, statuses);
    say("Waitsome %d", outcount == MPI_UNDEFINED);
    DONE(Testsome, 0, 2, requests, &outcount, indices, statuses);
    say("Testsome %d", outcount == MPI_UNDEFINED);

    exchanged("MPI_Sendrecv", 0, 0,
              MPI_Sendrecv(NULL, 0, MPI_INT, right, 5, NULL, 0, MPI_INT, left, 5, w, &status));
    say_status("empty", &status, MPI_INT);
    DO(Bcast, 0, NULL, 0, MPI_INT, p - 1, w);
    DO(Allreduce, 0, MPI_IN_PLACE, NULL, 0, MPI_INT, MPI_SUM, w);
    DO(Reduce, 0, me ? NULL : MPI_IN_PLACE, NULL, 0, MPI_INT, MPI_SUM, 0, w);
    DO(Gather, 0, NULL, 0, MPI_INT, NULL, 0, MPI_INT, 0, w);
    DO(Scatter, 0, NULL, 0, MPI_INT, NULL, 0, MPI_INT, 0, w);
    DO(Allgather, 0, NULL, 0, MPI_INT, NULL, 0, MPI_INT, w);
    DO(Alltoall, 0, NULL, 0, MPI_INT, NULL, 0, MPI_INT, w);
    end();
    return 0;
}
