/* An open 2-D grid: each step puts its four borders between two fences. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    MPI_Init(&argc, &argv);
    grid(0);
    int nx = block(1024, dims[0], at[0]), ny = block(768, dims[1], at[1]);
    int most = 1024 + 768;
    double *halo = calloc(4 * (size_t)most, sizeof *halo), *mine = calloc((size_t)most, sizeof *mine);
    MPI_Win_create(halo, 4 * (MPI_Aint)most * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int step = 0; step < 10; step++) {
        MPI_Win_fence(0, win);
        if (west != MPI_PROC_NULL)
            MPI_Put(mine, ny, MPI_DOUBLE, west, 0, ny, MPI_DOUBLE, win);
        if (east != MPI_PROC_NULL)
            MPI_Put(mine, ny, MPI_DOUBLE, east, most, ny, MPI_DOUBLE, win);
        if (south != MPI_PROC_NULL)
            MPI_Put(mine, nx, MPI_DOUBLE, south, 2 * most, nx, MPI_DOUBLE, win);
        if (north != MPI_PROC_NULL)
            MPI_Put(mine, nx, MPI_DOUBLE, north, 3 * most, nx, MPI_DOUBLE, win);
        for (int k = 0; k < 4; k++) {
            int other[4] = {west, east, south, north}, size = 8 * (k < 2 ? ny : nx);
            sends(other[k], size), receives(other[k], size);
        }
        compute((long)nx * ny / 64);
        MPI_Win_fence(0, win);
        compute((long)nx * ny / 64);
    }
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
