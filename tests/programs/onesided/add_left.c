/* A ring under exclusive locks: each rank adds to its left neighbour, then all agree to go on. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    double *memory, mine[300] = {0}, sum;
    MPI_Init(&argc, &argv);
    grid(0);
    int left = (me + p - 1) % p;
    MPI_Win_allocate(300 * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int step = 0; step < 9; step++) {
        compute(2000);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, left, 0, win);
        MPI_Accumulate(mine, 300, MPI_DOUBLE, left, 0, 300, MPI_DOUBLE, MPI_SUM, win);
        sends(left, 2400), receives((me + 1) % p, 2400);
        MPI_Win_unlock(left, win);
        double own = step;
        MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
