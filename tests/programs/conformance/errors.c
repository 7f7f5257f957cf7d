/* MPI_ERRORS_RETURN: error classes are those of the MPI library, and a call that failed is no
 * event. How many calls it takes to complete all requests after an error is up to the library. */
#include "conform.h"

int main(void)
{
    int value[4] = {1, 2, 3, 4}, rc;
    MPI_Status status, statuses[2];
    MPI_Request request, requests[2];
    MPI_Comm w = MPI_COMM_WORLD, copy;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Comm_set_errhandler(w, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    say("bad rank %d", class_of(DO(Send, 4, value, 1, MPI_INT, p + 3, 1, w)) == MPI_ERR_RANK);
    say("bad rank %d", class_of(DO(Isend, 4, value, 1, MPI_INT, -77, 1, w, &request)) ==
        MPI_ERR_RANK);
    say("bad source %d", class_of(DO(Recv, 4, value, 1, MPI_INT, p, 1, w, &status)) ==
        MPI_ERR_RANK);
    say("bad tag %d", class_of(DO(Send, 4, value, 1, MPI_INT, right, -5, w)) == MPI_ERR_TAG);
    say("bad count %d", class_of(DO(Send, 4, value, -1, MPI_INT, right, 1, w)) == MPI_ERR_COUNT);
    say("bad type %d", class_of(DO(Send, 4, value, 1, MPI_DATATYPE_NULL, right, 1, w)) ==
        MPI_ERR_TYPE);
    say("bad root %d", class_of(DO(Bcast, 4, value, 1, MPI_INT, p + 1, w)) == MPI_ERR_ROOT);
    say("bad op %d", class_of(DO(Allreduce, 4, value, value + 1, 1, MPI_INT, MPI_OP_NULL, w)) ==
        MPI_ERR_OP);
    say("bad comm %d", class_of(DO(Barrier, 0, MPI_COMM_NULL)) == MPI_ERR_COMM);
    rc = DO(Cart_create, 0, w, 1, (int[]){p + 1}, (int[]){0}, 0, &copy);
    say("grid too large %d", rc != MPI_SUCCESS);

    /* Truncation: the message is longer than what was asked for. */
    DO(Isend, 16, value, 4, MPI_INT, right, 2, w, &request);
    rc = DO(Recv, 8, (int[2]){0}, 2, MPI_INT, left, 2, w, &status);
    say("truncated %d", class_of(rc) == MPI_ERR_TRUNCATE);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    int small[2] = {0}, enough[4] = {0};
    DO(Irecv, 8, small, 2, MPI_INT, left, 3, w, &requests[0]);
    DO(Irecv, 16, enough, 4, MPI_INT, left, 4, w, &requests[1]);
    DO(Send, 16, value, 4, MPI_INT, right, 3, w);
    DO(Send, 16, value, 4, MPI_INT, right, 4, w);
    rc = DONE(Waitall, 2, 2, requests, statuses);
    say("in status %d: %d", class_of(rc) == MPI_ERR_IN_STATUS,
        class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
    while (requests[1] != MPI_REQUEST_NULL) /* it may have been left for later */
        DONE(Wait, 1, &requests[1], &status);
    say("%d %d", enough[0], enough[3]);
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(MPI_ERR_TRUNCATE, text, &length);
    say("string %d", length > 0);
    DO(Barrier, 0, w);
    DO(Comm_dup, 0, w, &copy); /* inherits the handler */
    say("bad rank %d", class_of(DO(Send, 4, value, 1, MPI_INT, p, 1, copy)) == MPI_ERR_RANK);
    DO(Comm_free, 0, &copy);
    end();
    return 0;
}
