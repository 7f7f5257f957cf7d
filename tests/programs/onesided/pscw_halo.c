/* An open 2-D grid: neighbours let each other in and put their borders, in a loop over them. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    MPI_Group all, near;
    MPI_Init(&argc, &argv);
    grid(0);
    int nx = block(900, dims[0], at[0]), ny = block(700, dims[1], at[1]);
    int to[4] = {west, east, south, north}, size[4] = {ny, ny, nx, nx}, ranks[4], many = 0;
    double *halo = calloc(4 * 1024, sizeof *halo), *mine = calloc(1024, sizeof *mine);
    for (int k = 0; k < 4; k++)
        if (to[k] != MPI_PROC_NULL)
            ranks[many++] = to[k];
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, many, ranks, &near);
    MPI_Win_allocate(4 * 1024 * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &halo, &win);
    for (int step = 0; step < 12; step++) {
        MPI_Win_post(near, 0, win);
        MPI_Win_start(near, 0, win);
        for (int k = 0; k < 4; k++)
            if (to[k] != MPI_PROC_NULL)
                MPI_Put(mine, size[k], MPI_DOUBLE, to[k], k * 1024, size[k], MPI_DOUBLE, win);
        for (int k = 0; k < 4; k++)
            sends(to[k], 8 * size[k]), receives(to[k], 8 * size[k]);
        MPI_Win_complete(win);
        compute((long)nx * ny / 64);
        MPI_Win_wait(win);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&near);
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
