/* Sends around a ring and reduces, for ever or until one rank ends it, and notes after each call
 * how many have returned: in a mapped file ledger-RANK, which survives every death.
 *
 *   endless SIZE RANK HOW CALLS
 *
 * At SIZE ranks, RANK (-1: none) ends after CALLS calls: HOW is kill, segv, exit, _exit, abort or
 * hang. At any other number of ranks all of them end well after some hundred calls. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ledger { uint64_t pid, returned; };

static volatile struct ledger *ledger;
static int me, p, ends_here;
static uint64_t last_call;
static const char *how;

static void open_ledger(void)
{
    char name[64];
    snprintf(name, sizeof name, "ledger-%06d", me);
    int fd = open(name, O_CREAT | O_RDWR, 0644);
    if (fd < 0 || ftruncate(fd, 4096))
        MPI_Abort(MPI_COMM_WORLD, 99);
    ledger = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 98);
    close(fd);
    ledger->returned = 1; /* MPI_Init */
    ledger->pid = (uint64_t)getpid();
}

static void done(void)
{
    ledger->returned++;
    if (!ends_here || ledger->returned < last_call)
        return;
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    if (!strcmp(how, "segv"))
        *(volatile int *)8 = 1;
    if (!strcmp(how, "exit"))
        exit(5);
    if (!strcmp(how, "_exit"))
        _exit(5);
    if (!strcmp(how, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 9); /* MPICH 5 returns, and ends the rank some time later */
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int in[100], out[100] = {0}, sum, size;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    open_ledger();
    size = atoi(argv[1]);
    how = argv[3];
    last_call = strtoull(argv[4], NULL, 10);
    ends_here = p == size && me == atoi(argv[2]);
    for (int turn = 0; p == size || turn < 100; turn++) {
        int n = turn % 100 + 1;
        MPI_Irecv(in, n, MPI_INT, (me + p - 1) % p, turn % 7, MPI_COMM_WORLD, &requests[0]);
        done();
        MPI_Isend(out, n, MPI_INT, (me + 1) % p, turn % 7, MPI_COMM_WORLD, &requests[1]);
        done();
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        done();
        for (int i = 0; i < 20; i++) {
            MPI_Send(out, i, MPI_INT, MPI_PROC_NULL, i, MPI_COMM_WORLD);
            done();
        }
        if (turn % 10 == 0) {
            MPI_Allreduce(&turn, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            done();
        }
    }
    MPI_Finalize();
    return 0;
}
