/* A torus: each rank puts to its neighbours with requests and waits for all of them. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    MPI_Request requests[4];
    double *memory, *mine = calloc(2048, sizeof *mine);
    MPI_Init(&argc, &argv);
    grid(1);
    int nx = block(1000, dims[0], at[0]), ny = block(600, dims[1], at[1]);
    MPI_Win_allocate(4 * 2048 * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    for (int step = 0; step < 8; step++) {
        MPI_Rput(mine, ny, MPI_DOUBLE, west, 0, ny, MPI_DOUBLE, win, &requests[0]);
        MPI_Rput(mine, ny, MPI_DOUBLE, east, 2048, ny, MPI_DOUBLE, win, &requests[1]);
        MPI_Rput(mine, nx, MPI_DOUBLE, south, 4096, nx, MPI_DOUBLE, win, &requests[2]);
        MPI_Rput(mine, nx, MPI_DOUBLE, north, 6144, nx, MPI_DOUBLE, win, &requests[3]);
        for (int k = 0; k < 4; k++) {
            int other[4] = {west, east, south, north}, size = 8 * (k < 2 ? ny : nx);
            sends(other[k], size), receives(other[k], size);
        }
        compute((long)nx * ny / 64);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        MPI_Win_flush_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(win);
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
