/* One-sided communication in all synchronization modes. */
#include "conform.h"

int main(void)
{
    MPI_Win win, other;
    MPI_Group all, left_group, right_group;
    MPI_Request request;
    int mine[4], *memory, got = -1, old = -1, one = 1, ranks[1];
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    for (int i = 0; i < 4; i++)
        mine[i] = me * 4 + i;
    DO(Win_create, -1, mine, sizeof mine, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    DO(Win_fence, -1, 0, win);
    DO(Put, -1, &me, 1, MPI_INT, right, 0, 1, MPI_INT, win);
    DO(Get, -1, &got, 1, MPI_INT, right, 3, 1, MPI_INT, win);
    DO(Win_fence, -1, 0, win);
    say("put %d, got %d", mine[0], got);
    DO(Accumulate, -1, &one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win);
    DO(Win_fence, -1, 0, win);
    say("accumulated %d", mine[1]);

    MPI_Comm_group(MPI_COMM_WORLD, &all);
    ranks[0] = left;
    MPI_Group_incl(all, 1, ranks, &left_group);
    ranks[0] = right;
    MPI_Group_incl(all, 1, ranks, &right_group);
    DO(Win_post, -1, left_group, 0, win);
    DO(Win_start, -1, right_group, 0, win);
    DO(Put, -1, &mine[3], 1, MPI_INT, right, 2, 1, MPI_INT, win);
    DO(Win_complete, -1, win);
    DO(Win_wait, -1, win);
    say("post and start %d", mine[2]);
    MPI_Group_free(&all), MPI_Group_free(&left_group), MPI_Group_free(&right_group);
    DO(Win_free, -1, &win);

    DO(Win_allocate, -1, 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
       &other);
    for (int i = 0; i < 4; i++)
        memory[i] = 0;
    DO(Barrier, 0, MPI_COMM_WORLD);
    DO(Win_lock, -1, MPI_LOCK_EXCLUSIVE, 0, 0, other);
    DO(Accumulate, -1, &one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, other);
    DO(Win_unlock, -1, 0, other);
    DO(Win_lock_all, -1, 0, other);
    DO(Fetch_and_op, -1, &one, &old, MPI_INT, 0, 1, MPI_SUM, other);
    DO(Win_flush, -1, 0, other);
    DO(Rput, -1, &me, 1, MPI_INT, right, 2, 1, MPI_INT, other, &request);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    DO(Win_flush_all, -1, other);
    DO(Win_unlock_all, -1, other);
    DO(Barrier, 0, MPI_COMM_WORLD);
    DO(Win_lock, -1, MPI_LOCK_SHARED, me, 0, other);
    say("%d %d %d, %d", memory[0], memory[1], memory[2], old >= 0 && old < p);
    DO(Win_unlock, -1, me, other);
    DO(Win_free, -1, &other);
    end();
    return 0;
}
