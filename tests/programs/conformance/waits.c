/* Nonblocking sends in all modes, completed by each of the eight completion calls. */
#include "conform.h"

enum { N = 6 };

static int in[N][20], out[N][20];
static MPI_Request requests[2 * N];

static void post(void)
{
    int right = (me + 1) % p, left = (me + p - 1) % p;
    memset(in, 0, sizeof in);
    for (int i = 0; i < N; i++)
        DO(Irecv, 80, in[i], 20, MPI_INT, left, i, MPI_COMM_WORLD, &requests[i]);
    DO(Barrier, 0, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        int n = i * 3;
        for (int k = 0; k < n; k++)
            out[i][k] = me * 100 + i * 10 + k;
        MPI_Request *request = &requests[N + i];
        if (i % 4 == 0)
            DO(Isend, 4 * n, out[i], n, MPI_INT, right, i, MPI_COMM_WORLD, request);
        else if (i % 4 == 1)
            DO(Issend, 4 * n, out[i], n, MPI_INT, right, i, MPI_COMM_WORLD, request);
        else if (i % 4 == 2)
            DO(Ibsend, 4 * n, out[i], n, MPI_INT, right, i, MPI_COMM_WORLD, request);
        else
            DO(Irsend, 4 * n, out[i], n, MPI_INT, right, i, MPI_COMM_WORLD, request);
    }
}

static void finish(const char *what, MPI_Status *statuses)
{
    for (int i = 0; i < 2 * N; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            say("%s: request %d is left", what, i);
    for (int i = 0; i < N; i++)
        say_status(what, &statuses[i], MPI_INT);
    say("%s %lx", what, checksum(in, sizeof in));
}

int main(void)
{
    MPI_Status statuses[2 * N], got[2 * N];
    int indices[2 * N], flag, index, n, left;
    char space[4096];
    begin();
    MPI_Buffer_attach(space, sizeof space);

    post();
    for (int i = 0; i < 2 * N; i++)
        DONE(Wait, 1, &requests[i], &statuses[i]);
    finish("Wait", statuses);

    post();
    DONE(Waitall, 2 * N, 2 * N, requests, statuses);
    finish("Waitall", statuses);

    post();
    for (int i = 0; i < 2 * N; i++) {
        DONE(Waitany, 1, 2 * N, requests, &index, &got[0]);
        statuses[index] = got[0];
    }
    DONE(Waitany, 0, 2 * N, requests, &index, &got[0]);
    say("nothing left: %d", index == MPI_UNDEFINED);
    finish("Waitany", statuses);

    post();
    for (left = 2 * N; left; left -= n) {
        MPI_Waitsome(2 * N, requests, &n, indices, got);
        for (int i = 0; i < n; i++)
            statuses[indices[i]] = got[i];
        count("MPI_Waitsome", n);
    }
    finish("Waitsome", statuses);

    post();
    for (int i = 0; i < 2 * N; i++)
        POLL(Test, 1, flag, &requests[i], &flag, &statuses[i]);
    finish("Test", statuses);

    post();
    POLL(Testall, 2 * N, flag, 2 * N, requests, &flag, statuses);
    finish("Testall", statuses);

    post();
    for (int i = 0; i < 2 * N; i++) {
        POLL(Testany, 1, flag, 2 * N, requests, &index, &flag, &got[0]);
        statuses[index] = got[0];
    }
    finish("Testany", statuses);

    post();
    for (left = 2 * N; left; left -= n) {
        POLL(Testsome, n, n, 2 * N, requests, &n, indices, got);
        for (int i = 0; i < n; i++)
            statuses[indices[i]] = got[i];
    }
    finish("Testsome", statuses);
    void *detached;
    DONE(Buffer_detach, 0, &detached, &n);
    end();
    return 0;
}
