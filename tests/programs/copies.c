/* Calls that a compiler copied, as optimisers do: one line of the program at two addresses. The
 * arguments are the number of steps and the rank that takes the other branch. */
#include <mpi.h>
#include <stdlib.h>
static int rank, size;
static double b[96];

__attribute__((noinline)) static void halo(int width)
{
    MPI_Request q[4];
    int left = rank ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Irecv(b, width, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, q);
    MPI_Irecv(b + 24, width, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, q + 1);
    MPI_Isend(b + 48, width, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, q + 2);
    MPI_Isend(b + 72, width, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, q + 3);
    MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
}

/* The copies differ in an instruction, so that no compiler makes one of them again. */
#define COPIED(first, call) do { if (first) { call; __asm__ volatile("nop"); } else { call; __asm__ volatile("nop; nop"); } } while (0)
#define TWICE(call) do { call; __asm__ volatile("nop"); call; __asm__ volatile("nop; nop"); } while (0)

int main(int argc, char **argv)
{
    int steps = atoi(argv[1]), other = atoi(argv[2]);
    double s = 0, t;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    TWICE(MPI_Bcast(b, 5, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    for (int i = 0; i < steps; i++) {
        for (int k = 1; k < size; k++)
            COPIED(i == 0 || rank == other, halo(24));
        COPIED(i == 0, MPI_Allreduce(&s, &t, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    }
    for (int i = 0; i < steps; i++) {
        halo(12);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
}
