/* Receives from MPI_ANY_SOURCE and with MPI_ANY_TAG, blocking and not; statuses are noted by
 * source, since the order of arrival is not fixed. With "ignore" no status is asked for. */
#include "conform.h"

static MPI_Status *st(MPI_Status *status, int ignore)
{
    return ignore ? MPI_STATUS_IGNORE : status;
}

int main(int argc, char **argv)
{
    int ignore = argc > 1 && !strcmp(argv[1], "ignore"), values[64][4], value[4], index, flag;
    MPI_Status by_source[64], status, statuses[64];
    MPI_Request requests[64];
    begin();
    memset(values, 0, sizeof values);
    for (int round = 0; round < 6; round++) {
        int n = round % 4 + 1, tag = 100 * round + me;
        for (int i = 0; i < 4; i++)
            value[i] = me * 10 + i + round;
        if (me) {
            DO(Send, 4 * n, value, n, MPI_INT, 0, tag, MPI_COMM_WORLD);
            continue;
        }
        long sum = 0;
        if (round < 3) {
            for (int i = 1; i < p; i++) {
                int got[4] = {0};
                /* One round at a time: a rank that is ahead must not be received from twice. */
                if (round == 0)
                    DO(Recv, 16, got, 4, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD,
                       st(&status, ignore));
                else
                    DO(Recv, 16, got, 4, MPI_INT, i, MPI_ANY_TAG, MPI_COMM_WORLD,
                       st(&status, ignore));
                if (!ignore)
                    by_source[status.MPI_SOURCE] = status;
                sum += got[0] + 3L * got[1] + 5L * got[2] + 7L * got[3];
            }
        } else if (p > 1) {
            for (int i = 1; i < p; i++)
                DO(Irecv, 16, values[i], 4, MPI_INT, MPI_ANY_SOURCE, 100 * round + i,
                   MPI_COMM_WORLD, &requests[i - 1]);
            if (round == 3) {
                DONE(Waitall, p - 1, p - 1, requests,
                     ignore ? MPI_STATUSES_IGNORE : statuses);
            } else if (round == 4) {
                for (int i = 1; i < p; i++) {
                    DONE(Waitany, 1, p - 1, requests, &index, st(&status, ignore));
                    statuses[index] = status;
                }
            } else {
                for (int i = 1; i < p; i++) {
                    POLL(Test, 1, flag, &requests[i - 1], &flag, st(&status, ignore));
                    statuses[i - 1] = status;
                }
            }
            for (int i = 1; i < p && !ignore; i++)
                by_source[statuses[i - 1].MPI_SOURCE] = statuses[i - 1];
            sum = (long)checksum(values, sizeof values);
        }
        for (int i = 1; i < p && !ignore; i++)
            say_status("by source", &by_source[i], MPI_INT);
        say("round %d %ld", round, sum);
    }
    DO(Barrier, 0, MPI_COMM_WORLD);
    /* Everything from anywhere with any tag: only the sum does not depend on the order. */
    long total = 0;
    for (int i = 0; i < 5 * (p - 1) && !me; i++) {
        int got;
        DO(Recv, 4, &got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
           st(&status, ignore));
        total += got;
        if (!ignore)
            total += 1000L * status.MPI_SOURCE + 100000L * status.MPI_TAG;
    }
    for (int i = 0; i < 5 && me; i++)
        DO(Send, 4, &me, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
    say("total %ld", total);
    end();
    return 0;
}
