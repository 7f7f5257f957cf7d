/* A ring in all modes of sending and of looking for messages, ten times: synchronous, ready,
 * buffered, probed, matched, replaced, completed by some and by any, cancelled before it came,
 * too late and without waiting for the end. */
#include <mpi.h>
#include <stdlib.h>

enum { TURNS = 10, N = 32 };

/* Receives that nothing comes for. */
static void cancelled(double *in, int source)
{
    int done, which;
    MPI_Request r;
    MPI_Irecv(in, N, MPI_DOUBLE, source, 9, MPI_COMM_WORLD, &r);
    MPI_Cancel(&r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Irecv(in, N, MPI_DOUBLE, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &r);
    MPI_Cancel(&r);
    for (done = 0; !done;)
        MPI_Testany(1, &r, &which, &done, MPI_STATUS_IGNORE);
    MPI_Irecv(in, N, MPI_DOUBLE, source, 9, MPI_COMM_WORLD, &r);
    MPI_Cancel(&r);
    MPI_Request_free(&r);
}

int main(int argc, char **argv)
{
    int rank, size, flag, some[3], count, any;
    double in[3][N], out[N] = {0};
    MPI_Request r[3];
    MPI_Status s;
    MPI_Message message;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int room = 4 * (N * sizeof(double) + MPI_BSEND_OVERHEAD);
    char *buffer = malloc(room);
    MPI_Buffer_attach(buffer, room);
    for (int i = 0; i < TURNS; i++) {
        MPI_Irecv(in[0], N, MPI_DOUBLE, last, 1, MPI_COMM_WORLD, &r[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Rsend(out, N, MPI_DOUBLE, next, 1, MPI_COMM_WORLD);
        MPI_Wait(&r[0], &s);
        MPI_Irecv(in[1], N, MPI_DOUBLE, last, 2, MPI_COMM_WORLD, &r[0]);
        MPI_Ssend(out, N / 2, MPI_DOUBLE, next, 2, MPI_COMM_WORLD);
        for (flag = 0; !flag;)
            MPI_Testany(1, r, &any, &flag, &s);
        MPI_Bsend(out, N / 4, MPI_DOUBLE, next, 3, MPI_COMM_WORLD);
        MPI_Probe(last, 3, MPI_COMM_WORLD, &s);
        MPI_Recv(in[0], N, MPI_DOUBLE, s.MPI_SOURCE, 3, MPI_COMM_WORLD, &s);
        MPI_Bsend(out, 3, MPI_DOUBLE, next, 4, MPI_COMM_WORLD);
        MPI_Mprobe(last, 4, MPI_COMM_WORLD, &message, &s);
        MPI_Mrecv(in[0], N, MPI_DOUBLE, &message, &s);
        MPI_Sendrecv_replace(out, 5, MPI_DOUBLE, next, 5, last, 5, MPI_COMM_WORLD, &s);
        for (int k = 0; k < 3; k++)
            MPI_Irecv(in[k], N, MPI_DOUBLE, last, 6 + k, MPI_COMM_WORLD, &r[k]);
        for (int k = 0; k < 3; k++)
            MPI_Send(out, k + 1, MPI_DOUBLE, next, 6 + k, MPI_COMM_WORLD);
        for (int left = 3; left; left -= count)
            MPI_Waitsome(3, r, &count, some, MPI_STATUSES_IGNORE);
        cancelled(in[0], last);
        MPI_Irecv(in[1], N, MPI_DOUBLE, last, 10, MPI_COMM_WORLD, &r[0]);
        MPI_Irecv(in[2], N, MPI_DOUBLE, last, 11, MPI_COMM_WORLD, &r[1]);
        MPI_Ssend(out, 7, MPI_DOUBLE, next, 10, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD); /* all of tag 10 have met their receives */
        MPI_Cancel(&r[0]);
        MPI_Cancel(&r[1]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    }
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
    MPI_Finalize();
    return 0;
}
