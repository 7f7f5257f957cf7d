/* The first of each row collects its row, rank 0 collects the rows, and answers: leaders [n rounds] */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int n = argument(argc, argv, 1, 131), rounds = argument(argc, argv, 2, 4);
    struct grid g = make_grid();
    int rows = g.extent[0], width = g.extent[1], y = g.at[0], x = g.at[1];
    int own = n / width + (x < n % width);
    double *data = calloc(n, sizeof *data);
    for (int s = 0; s < rounds; s++) {
        if (x > 0)
            MPI_Send(data, own, MPI_DOUBLE, rank - x, 0, MPI_COMM_WORLD);
        else {
            for (int k = 1; k < width; k++)
                MPI_Recv(data, n, MPI_DOUBLE, rank + k, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (y > 0) {
                MPI_Send(data, n, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
                MPI_Recv(data, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
        for (int k = 1; rank == 0 && k < rows; k++)
            MPI_Recv(data, n, MPI_DOUBLE, k * width, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 1; rank == 0 && k < rows; k++)
            MPI_Send(data, 1, MPI_DOUBLE, k * width, 2, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
