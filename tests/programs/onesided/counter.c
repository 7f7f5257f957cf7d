/* Pieces of work are handed out by a counter of rank 0, until there are none. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    long *counter, one = 1, piece;
    MPI_Init(&argc, &argv);
    grid(0);
    MPI_Win_allocate(me ? 0 : sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &win);
    if (!me)
        *counter = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    long mine = 0, all = 0;
    for (;; mine++) {
        MPI_Fetch_and_op(&one, &piece, MPI_LONG, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        if (piece >= 400)
            break;
        compute(2000);
    }
    MPI_Win_unlock_all(win);
    mine++;
    MPI_Reduce(&mine, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    for (long k = 0; k < mine; k++)
        sends(0, sizeof one), receives(0, sizeof one);
    for (long k = 0; k < all; k++)
        receives(k, sizeof one), sends(k, sizeof one);
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
