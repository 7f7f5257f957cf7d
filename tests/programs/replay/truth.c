/* The real program of the replay benchmark: every rank executes a list of MPI calls and sleeps.
 *
 *     truth SCRIPT RESULT REPETITIONS WARMUP
 *
 * SCRIPT (text; every rank reads it and takes its own lines):
 *     comm ID SIZE RANK...              a communicator besides 0, the world; its ranks in order
 *     do RANK OP PEER BYTES TAG COMM WORK_NS [PEER2 BYTES2 TAG2]
 * OP: work, send, isend, recv, irecv, sendrecv (from PEER2), wait (for the oldest BYTES requests),
 * and barrier, bcast, reduce, allreduce, allgather, alltoall (root in PEER, BYTES as MPI counts
 * them on one rank). WORK_NS is slept before the call.
 *
 * RESULT (64-bit integers of this machine): number of ranks, repetitions, then per rank the number
 * of its lines, then per rank and repetition (begin, call, end) of every line in ns after the
 * common start: begin of the work, begin of the call, end of the call.
 *
 * All ranks must be on one machine (namespaces of one kernel): the start is one absolute time of
 * the monotonic clock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { WORK, SEND, ISEND, RECV, IRECV, SENDRECV, WAIT, BARRIER, BCAST, REDUCE, ALLREDUCE,
       ALLGATHER, ALLTOALL, NOPS };
static const char *const NAMES[NOPS] = {"work", "send", "isend", "recv", "irecv", "sendrecv",
    "wait", "barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"};

struct line {
    int op, peer, tag, comm, peer2, tag2;
    long bytes, bytes2;
    int64_t work;
};

#define MOST_COMMS 64
#define START_NS 20000000
static int rank, size;
static MPI_Comm comms[MOST_COMMS];
static struct line *lines;
static long nlines;
static int64_t oversleep;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "truth: rank %d: %s: %s\n", rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sleep_until(int64_t when)
{
    struct timespec t = {when / 1000000000, when % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void work(int64_t ns)
{
    int64_t begin = now();
    if (ns > oversleep)
        sleep_until(begin + ns - oversleep);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A sleep of the same length takes a little longer every time: find out how much. */
static void calibrate(void)
{
    int64_t late[64];
    for (int i = 0; i < 64; i++) {
        int64_t begin = now();
        sleep_until(begin + 3000000);
        late[i] = now() - begin - 3000000;
    }
    qsort(late, 64, sizeof late[0], by_value);
    oversleep = late[32];
}

static void read_script(const char *path)
{
    FILE *file = fopen(path, "r");
    char word[32], op[32];
    long room = 0;
    if (!file)
        stop(path, strerror(errno));
    comms[0] = MPI_COMM_WORLD;
    while (fscanf(file, "%31s", word) == 1) {
        if (!strcmp(word, "comm")) {
            int id, n, mine = 0;
            if (fscanf(file, "%d %d", &id, &n) != 2 || id < 1 || id >= MOST_COMMS || n < 1)
                stop(path, "bad comm");
            int *members = malloc(n * sizeof *members);
            for (int i = 0; i < n; i++) {
                if (fscanf(file, "%d", &members[i]) != 1)
                    stop(path, "bad comm");
                mine |= members[i] == rank;
            }
            if (mine) {
                MPI_Group world, group;
                MPI_Comm_group(MPI_COMM_WORLD, &world);
                MPI_Group_incl(world, n, members, &group);
                MPI_Comm_create_group(MPI_COMM_WORLD, group, id, &comms[id]);
                MPI_Group_free(&group);
                MPI_Group_free(&world);
            }
            free(members);
        } else if (!strcmp(word, "do")) {
            struct line l = {0};
            int who;
            long long ns;
            if (fscanf(file, "%d %31s %d %ld %d %d %lld", &who, op, &l.peer, &l.bytes, &l.tag,
                       &l.comm, &ns) != 7)
                stop(path, "bad line");
            l.work = ns;
            for (l.op = 0; l.op < NOPS && strcmp(op, NAMES[l.op]); l.op++)
                ;
            if (l.op == NOPS)
                stop(path, op);
            if (l.op == SENDRECV && fscanf(file, "%d %ld %d", &l.peer2, &l.bytes2, &l.tag2) != 3)
                stop(path, "bad sendrecv");
            if (who != rank)
                continue;
            if (nlines == room) {
                room = room ? 2 * room : 256;
                lines = realloc(lines, room * sizeof *lines);
                if (!lines)
                    stop(path, "no memory");
            }
            lines[nlines++] = l;
        } else {
            stop(path, word);
        }
    }
    fclose(file);
}

static MPI_Request *requests;
static char **buffers; /* of each line, as a program has its own buffer for each neighbour */
static long oldest, newest;

static void call(const struct line *l, char *out, char *in)
{
    MPI_Comm c = comms[l->comm];
    int n = (int)l->bytes;
    switch (l->op) {
    case SEND: MPI_Send(out, n, MPI_BYTE, l->peer, l->tag, c); break;
    case ISEND: MPI_Isend(out, n, MPI_BYTE, l->peer, l->tag, c, &requests[newest++]); break;
    case RECV: MPI_Recv(in, n, MPI_BYTE, l->peer, l->tag, c, MPI_STATUS_IGNORE); break;
    case IRECV: MPI_Irecv(in, n, MPI_BYTE, l->peer, l->tag, c, &requests[newest++]); break;
    case SENDRECV:
        MPI_Sendrecv(out, n, MPI_BYTE, l->peer, l->tag, in, (int)l->bytes2, MPI_BYTE, l->peer2,
                     l->tag2, c, MPI_STATUS_IGNORE);
        break;
    case WAIT:
        if (n == 1)
            MPI_Wait(&requests[oldest], MPI_STATUS_IGNORE);
        else
            MPI_Waitall(n, &requests[oldest], MPI_STATUSES_IGNORE);
        oldest += n;
        break;
    case BARRIER: MPI_Barrier(c); break;
    case BCAST: MPI_Bcast(in, n, MPI_BYTE, l->peer, c); break;
    case REDUCE: MPI_Reduce(out, in, n / 8, MPI_DOUBLE, MPI_SUM, l->peer, c); break;
    case ALLREDUCE: MPI_Allreduce(out, in, n / 8, MPI_DOUBLE, MPI_SUM, c); break;
    case ALLGATHER: MPI_Allgather(out, n, MPI_BYTE, in, n, MPI_BYTE, c); break;
    case ALLTOALL: MPI_Alltoall(out, n, MPI_BYTE, in, n, MPI_BYTE, c); break;
    default: break;
    }
}

/* Buffers are plain malloc, written once: small pages, all of them there before the first use. */
static char *buffer(long bytes)
{
    char *memory = malloc(bytes > 64 ? bytes : 64);
    if (!memory)
        stop("buffer", "no memory");
    return memset(memory, 0, bytes > 64 ? bytes : 64);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5)
        stop("usage", "truth SCRIPT RESULT REPETITIONS WARMUP");
    int repetitions = atoi(argv[3]), warmup = atoi(argv[4]);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    read_script(argv[1]);

    long most_out = 0, most_in = 0;
    requests = malloc((nlines + 1) * sizeof *requests);
    buffers = malloc((nlines + 1) * sizeof *buffers);
    for (long i = 0; i < nlines; i++) {
        const struct line *l = &lines[i];
        long members = l->op == ALLGATHER || l->op == ALLTOALL ? size : 1;
        long in = l->op == SENDRECV ? l->bytes2 : l->op == WAIT ? 0 : l->bytes * members;
        long out = l->op == WAIT ? 0 : l->bytes * (l->op == ALLTOALL ? size : 1);
        if (in > most_in)
            most_in = in;
        if (out > most_out)
            most_out = out;
    }
    char *out = buffer(most_out), *in = buffer(most_in);
    /* Nonblocking calls use a place of their own while they are outstanding: at most `deep`. */
    long deep = 0, open = 0;
    for (long i = 0; i < nlines; i++) {
        open += lines[i].op == ISEND || lines[i].op == IRECV ? 1 :
                lines[i].op == WAIT ? -lines[i].bytes : 0;
        if (open > deep)
            deep = open;
    }
    char **places = malloc((deep + 1) * sizeof *places);
    for (long i = 0; i <= deep; i++)
        places[i] = buffer(most_in > most_out ? most_in : most_out);

    int64_t *times = malloc((nlines * 3 * repetitions + 1) * sizeof *times);
    MPI_Barrier(MPI_COMM_WORLD);
    calibrate();
    for (int repetition = -warmup; repetition < repetitions; repetition++) {
        int64_t start = 0;
        int64_t *at = times + 3 * nlines * (repetition < 0 ? 0 : repetition);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            start = now() + START_NS;
        MPI_Bcast(&start, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
        oldest = newest = 0;
        sleep_until(start - oversleep);
        for (long i = 0; i < nlines; i++, at += 3) {
            const struct line *l = &lines[i];
            int own = l->op == ISEND || l->op == IRECV;
            char *place = places[deep ? newest % deep : 0];
            at[0] = now() - start;
            if (l->work)
                work(l->work);
            at[1] = now() - start;
            call(l, own ? place : out, own ? place : in);
            at[2] = now() - start;
        }
        if (oldest < newest)
            MPI_Waitall((int)(newest - oldest), &requests[oldest], MPI_STATUSES_IGNORE);
    }

    if (rank == 0) {
        FILE *file = fopen(argv[2], "wb");
        int64_t head[2] = {size, repetitions};
        if (!file)
            stop(argv[2], strerror(errno));
        int64_t *counts = malloc(size * sizeof *counts);
        int64_t mine = nlines;
        MPI_Gather(&mine, 8, MPI_BYTE, counts, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
        fwrite(head, 8, 2, file);
        fwrite(counts, 8, size, file);
        fwrite(times, 8, 3 * nlines * repetitions, file);
        for (int other = 1; other < size; other++) {
            long n = 3 * counts[other] * repetitions;
            int64_t *theirs = malloc((n + 1) * 8);
            MPI_Recv(theirs, (int)(8 * n), MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            fwrite(theirs, 8, n, file);
            free(theirs);
        }
        if (fclose(file))
            stop(argv[2], strerror(errno));
    } else {
        int64_t mine = nlines;
        MPI_Gather(&mine, 8, MPI_BYTE, NULL, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
        MPI_Send(times, (int)(24 * nlines * repetitions), MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
