/* Tests before waits: the wait comes in any case ("always"), or where no test succeeded ("else"); or
 * a loop that polls until all is done ("some"). The arguments are which of both, and the number of steps. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
static volatile double sink;
static double b[4000];

static void compute(int turns)
{
    for (int i = 0; i < turns; i++)
        sink += i;
}

int main(int argc, char **argv)
{
    int rank, size, flag, always = !strcmp(argv[1], "always"), some = !strcmp(argv[1], "some"), steps = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int step = 0; step < steps; step++) {
        MPI_Request q[4];
        MPI_Irecv(b, 1000, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, q);
        MPI_Irecv(b + 1000, 1000, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, q + 1);
        compute((rank * 7919 + step * 104729) % 40000);
        MPI_Isend(b + 2000, 1000, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, q + 2);
        MPI_Isend(b + 3000, 1000, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, q + 3);
        compute(20000);
        for (int open = some ? 4 : 0, done, at[4]; open > 0; compute(100)) {
            MPI_Testsome(4, q, &done, at, MPI_STATUSES_IGNORE);
            open -= done;
        }
        flag = some;
        for (int k = 0; k < (rank + step) % 7 * 3 && !flag; k++)
            MPI_Testall(4, q, &flag, MPI_STATUSES_IGNORE);
        if (always)
            MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
        else if (!flag)
            MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
        MPI_Allreduce(b, b + 1, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
}
