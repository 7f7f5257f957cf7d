/* A matrix in slabs is transposed: each rank gets its part from all others, between fences. */
#include "grid.h"

int main(int argc, char **argv)
{
    MPI_Win win;
    MPI_Init(&argc, &argv);
    grid(0);
    int mine_rows = block(576, p, me);
    size_t most = (576 / p + 1) * (size_t)576;
    double *mine = calloc(most, sizeof *mine), *got = calloc(most, sizeof *got);
    MPI_Win_create(mine, (MPI_Aint)most * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    for (int step = 0; step < 6; step++) {
        compute(20000 / p);
        for (int k = 1; k < p; k++) {
            int from = (me + k) % p, part = mine_rows * block(576, p, from);
            receives(from, 8 * part), sends(from, 8 * part);
            MPI_Get(got, part, MPI_DOUBLE, from, 0, part, MPI_DOUBLE, win);
        }
        MPI_Win_fence(step == 5 ? MPI_MODE_NOSUCCEED : 0, win);
    }
    tell();
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
