/* Blocking sends in all four modes around a ring, from empty to rendezvous size. */
#include "conform.h"

static int in[70000], out[70000];

static void one(const char *mode, int n, int tag)
{
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < n; i++)
        out[i] = me * 1000003 + i * 7 + tag;
    DO(Irecv, 4L * n, in, n, MPI_INT, left, tag, MPI_COMM_WORLD, &request);
    if (!strcmp(mode, "ready"))
        DO(Barrier, 0, MPI_COMM_WORLD); /* the receive is posted everywhere */
    if (!strcmp(mode, "plain"))
        DO(Send, 4L * n, out, n, MPI_INT, right, tag, MPI_COMM_WORLD);
    else if (!strcmp(mode, "synchronous"))
        DO(Ssend, 4L * n, out, n, MPI_INT, right, tag, MPI_COMM_WORLD);
    else if (!strcmp(mode, "buffered"))
        DO(Bsend, 4L * n, out, n, MPI_INT, right, tag, MPI_COMM_WORLD);
    else
        DO(Rsend, 4L * n, out, n, MPI_INT, right, tag, MPI_COMM_WORLD);
    DONE(Wait, 1, &request, &status);
    say_status(mode, &status, MPI_INT);
    say("%lx", checksum(in, sizeof(int) * (size_t)n));
}

int main(void)
{
    static const char *const modes[] = {"plain", "synchronous", "buffered", "ready"};
    static const int sizes[] = {0, 1, 100, 70000};
    int attached = (int)sizeof out + MPI_BSEND_OVERHEAD;
    void *space = malloc((size_t)attached);
    begin();
    MPI_Buffer_attach(space, attached);
    for (int m = 0; m < 4; m++)
        for (int s = 0; s < 4; s++) {
            if (m == 2 && s == 3) /* an empty buffer: the earlier messages have left it */
                DONE(Buffer_detach, 0, &space, &attached), MPI_Buffer_attach(space, attached);
            one(modes[m], sizes[s], 10 * m + s);
        }
    DONE(Buffer_detach, 0, &space, &attached);
    /* Blocking receives: the even ranks send first; the last rank of an odd ring sits out. */
    int even = p - p % 2, other = me ^ 1, values[3] = {me, me * me, 7};
    MPI_Status status;
    if (me < even) {
        if (me % 2 == 0) {
            DO(Send, 12, values, 3, MPI_INT, other, 99, MPI_COMM_WORLD);
            DO(Recv, 20, in, 5, MPI_INT, other, 98, MPI_COMM_WORLD, &status);
        } else {
            DO(Recv, 20, in, 5, MPI_INT, other, 99, MPI_COMM_WORLD, &status);
            DO(Send, 12, values, 3, MPI_INT, other, 98, MPI_COMM_WORLD);
        }
        say_status("pair", &status, MPI_INT);
        say("%d %d %d", in[0], in[1], in[2]);
    }
    free(space);
    end();
    return 0;
}
