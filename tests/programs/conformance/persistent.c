/* Persistent requests of every mode: started, waited for, tested, started again, freed. The
 * receive with MPI_ANY_TAG has a communicator of its own: no other message can match it. */
#include "conform.h"

enum { N = 4, TURNS = 5 };

static int in[N][10], out[N][10];

static void started(void)
{
    static const char *const names[] = {"MPI_Send_init", "MPI_Ssend_init", "MPI_Bsend_init",
                                        "MPI_Rsend_init"};
    for (int i = 0; i < N; i++)
        count(names[i], 40);
}

int main(void)
{
    MPI_Request receives[N], sends[N], idle;
    MPI_Status statuses[N];
    char space[4096];
    int flag, n;
    void *detached;
    MPI_Comm other;
    begin();
    DO(Comm_dup, 0, MPI_COMM_WORLD, &other);
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Buffer_attach(space, sizeof space);
    for (int i = 0; i < N; i++)
        MPI_Recv_init(in[i], 10, MPI_INT, i == 1 ? MPI_ANY_SOURCE : left,
                      i == 2 ? MPI_ANY_TAG : i, i == 2 ? other : MPI_COMM_WORLD, &receives[i]);
    MPI_Send_init(out[0], 10, MPI_INT, right, 0, MPI_COMM_WORLD, &sends[0]);
    MPI_Ssend_init(out[1], 10, MPI_INT, right, 1, MPI_COMM_WORLD, &sends[1]);
    MPI_Bsend_init(out[2], 10, MPI_INT, right, 2, other, &sends[2]);
    MPI_Rsend_init(out[3], 10, MPI_INT, right, 3, MPI_COMM_WORLD, &sends[3]);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < N; i++)
            for (int k = 0; k < 10; k++)
                out[i][k] = turn * 1000 + me * 100 + i * 10 + k;
        if (turn % 2) {
            MPI_Startall(N, receives);
        } else {
            for (int i = N; i-- > 0;)
                MPI_Start(&receives[i]);
        }
        for (int i = 0; i < N; i++)
            count("MPI_Recv_init", 40);
        DO(Barrier, 0, MPI_COMM_WORLD);
        MPI_Start(&sends[0]);
        MPI_Start(&sends[3]);
        DONE(Wait, 1, &receives[0], &statuses[0]);
        DONE(Wait, 1, &receives[3], &statuses[3]);
        MPI_Start(&sends[1]);
        if (turn == 2) {
            POLL(Test, 1, flag, &receives[1], &flag, &statuses[1]);
        } else {
            DONE(Wait, 1, &receives[1], turn == 3 ? MPI_STATUS_IGNORE : &statuses[1]);
        }
        MPI_Startall(1, &sends[2]);
        DONE(Waitall, 1, 1, &receives[2], &statuses[2]);
        started();
        DONE(Waitall, N, N, sends, MPI_STATUSES_IGNORE);
        for (int i = 0; i < N; i++)
            if (turn != 3 || i != 1)
                say_status("received", &statuses[i], MPI_INT);
        say("turn %d %lx", turn, checksum(in, sizeof in));
    }
    /* Inactive requests complete at once and with nothing. */
    DONE(Wait, 0, &sends[0], &statuses[0]);
    say("inactive: %d", statuses[0].MPI_SOURCE == MPI_ANY_SOURCE);
    DONE(Waitall, 0, N, receives, MPI_STATUSES_IGNORE);
    MPI_Send_init(out[0], 1, MPI_INT, right, 9, MPI_COMM_WORLD, &idle); /* never started */
    MPI_Request_free(&idle);
    for (int i = 0; i < N; i++) {
        MPI_Request_free(&receives[i]);
        MPI_Request_free(&sends[i]);
    }
    DO(Comm_free, 0, &other);
    DONE(Buffer_detach, 0, &detached, &n);
    end();
    return 0;
}
