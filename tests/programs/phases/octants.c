/* Sweeps over eight octants in blocks of planes: octants [sweeps] [blocks] [guards: 0 or 1]
 *
 * The direction changes inside each of the four calls; at the border a rank either calls with
 * MPI_PROC_NULL or, with guards, not at all.
 */
#include "phases.h"

enum { WORDS = 12 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int sweeps = argument(argc, argv, 1, 3), blocks = argument(argc, argv, 2, 4);
    int guards = argument(argc, argv, 3, 0);
    struct grid g = make_grid();
    double edge[2][WORDS] = {{0}}, flux = 0.0, all;
    for (int s = 0; s < sweeps; s++) {
        for (int octant = 0; octant < 8; octant++) {
            int dx = octant & 2 ? 1 : -1, dy = octant & 4 ? 1 : -1;
            int from_x = neighbour(&g, 0, -dx), to_x = neighbour(&g, 0, dx);
            int from_y = neighbour(&g, 1, -dy), to_y = neighbour(&g, 1, dy);
            for (int b = 0; b < blocks; b++) {
                if (!guards || from_x != MPI_PROC_NULL)
                    MPI_Recv(edge[0], WORDS, MPI_DOUBLE, from_x, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
                if (!guards || from_y != MPI_PROC_NULL)
                    MPI_Recv(edge[1], WORDS, MPI_DOUBLE, from_y, 1, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
                if (!guards || to_x != MPI_PROC_NULL)
                    MPI_Send(edge[0], WORDS, MPI_DOUBLE, to_x, 0, MPI_COMM_WORLD);
                if (!guards || to_y != MPI_PROC_NULL)
                    MPI_Send(edge[1], WORDS, MPI_DOUBLE, to_y, 1, MPI_COMM_WORLD);
            }
        }
        MPI_Allreduce(&flux, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
