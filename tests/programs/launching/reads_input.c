/* As many barriers as standard input says; 5 where it is at its end. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int me, turns = 5;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (me == 0 && scanf("%d", &turns) != 1)
        turns = 5;
    MPI_Bcast(&turns, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < turns; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0)
        printf("turns: %d\n", turns);
    MPI_Finalize();
    return 0;
}
