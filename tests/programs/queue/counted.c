/* Pairs of blocks are taken from a counter of rank 0 by all ranks, their products added where they
 * belong: counted TASKS. Each rank prints how many it did. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 400 };

int main(int argc, char **argv)
{
    int size, rank, tasks;
    long one = 1, task, mine = 0, *counter;
    double *sum, product[BLOCK] = {0};
    MPI_Win next, sums;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    tasks = atoi(argv[1]);
    MPI_Win_allocate(rank ? 0 : sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD,
                     &counter, &next);
    MPI_Win_allocate(BLOCK * sizeof *sum, sizeof *sum, MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &sums);
    if (!rank)
        *counter = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, next);
    MPI_Win_lock_all(0, sums);
    for (;; mine++) {
        MPI_Fetch_and_op(&one, &task, MPI_LONG, 0, 0, MPI_SUM, next);
        MPI_Win_flush(0, next);
        if (task >= tasks)
            break;
        for (int k = 0; k < 600 + 100 * (int)(task % 5); k++)
            for (int i = 0; i < BLOCK; i++)
                product[i] = product[i] * 0.3 + k;
        MPI_Accumulate(product, BLOCK, MPI_DOUBLE, task % size, 0, BLOCK, MPI_DOUBLE, MPI_SUM, sums);
        MPI_Win_flush(task % size, sums);
    }
    MPI_Win_unlock_all(next);
    MPI_Win_unlock_all(sums);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d did %ld\n", rank, mine);
    MPI_Win_free(&next);
    MPI_Win_free(&sums);
    MPI_Finalize();
    return 0;
}
