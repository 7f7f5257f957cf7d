/* Master and workers; the master polls for results: polling [tasks]
 *
 * Who does how many tasks is chance. There are at least as many tasks as workers.
 */
#include "phases.h"

enum { TASK = 1, STOP, RESULT };

static void master(int tasks)
{
    double number = 0.0, result;
    int sent = 0, busy = 0;
    for (int w = 1; w < size; w++, sent++, busy++)
        MPI_Send(&number, 1, MPI_DOUBLE, w, TASK, MPI_COMM_WORLD);
    while (busy > 0) {
        MPI_Status status;
        int there = 0;
        while (!there)
            MPI_Iprobe(MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &there, &status);
        MPI_Recv(&result, 1, MPI_DOUBLE, status.MPI_SOURCE, RESULT, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        if (sent < tasks) {
            MPI_Send(&number, 1, MPI_DOUBLE, status.MPI_SOURCE, TASK, MPI_COMM_WORLD);
            sent++;
        } else {
            MPI_Send(&number, 1, MPI_DOUBLE, status.MPI_SOURCE, STOP, MPI_COMM_WORLD);
            busy--;
        }
    }
}

static void worker(void)
{
    volatile double sum = 0.0;
    for (;;) {
        double number, result = 0.0;
        MPI_Status status;
        MPI_Recv(&number, 1, MPI_DOUBLE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == STOP)
            return;
        for (int i = 0; i < 20000 * (1 + rank % 3); i++)
            sum = sum + i;
        MPI_Send(&result, 1, MPI_DOUBLE, 0, RESULT, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int tasks = argument(argc, argv, 1, 60);
    if (rank == 0)
        master(tasks < size - 1 ? size - 1 : tasks);
    else
        worker();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
