/* A ring without the targets' help: lock_all once, then put, flush, and a barrier each step. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    double *memory, *mine = calloc(4096, sizeof *mine);
    MPI_Init(&argc, &argv);
    grid(0);
    MPI_Win_allocate(4096 * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_lock_all(0, win);
    int n = block(20000, p, me);
    for (int step = 0; step < 15; step++) {
        compute(n);
        MPI_Put(mine, 500, MPI_DOUBLE, (me + 1) % p, 0, 500, MPI_DOUBLE, win);
        sends((me + 1) % p, 4000), receives((me + p - 1) % p, 4000);
        MPI_Win_flush((me + 1) % p, win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(win);
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
