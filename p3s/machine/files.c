/* What reading and writing files costs: every rank does the same, rank 0 prints a line for each.
 *
 *   files DIRECTORY BYTES REPEATS [posix]
 *
 * Line: way sharing what pattern bytes calls seconds... (a number for each repeat).
 *
 * Opening, writing and closing follow each other without a barrier, as in programs: while one rank
 * closes another still writes. Each gets the share of the time until the last rank is done that the
 * ranks spend in it. The same is done with a sync before the file is closed, and with a file that
 * was written before and is truncated: sync and renew are what that takes longer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, PIECE = 65536, LARGE = 1 << 20, AGAIN = 5 };

static int rank, size, repeats;
static const char *directory;
static char *buffer;
static int64_t most;
static double taken[8][MOST];
static const char *const names[] =
    {"open", "write", "close", "sync", "renew", "reopen", "read", "cold"};
enum { OPEN, WRITE, CLOSE, SYNC, RENEW, REOPEN, READ, COLD, STEPS, OTHER = STEPS };

static double began, before, mine[OTHER + 1];
static void begin(void)
{
    memset(mine, 0, sizeof mine);
    MPI_Barrier(MPI_COMM_WORLD);
    before = began = MPI_Wtime();
}

/* What was done since the lap before. */
static void lap(int step)
{
    double now = MPI_Wtime();
    mine[step] += now - before;
    before = now;
}

/* Seconds since the beginning, until the last rank is done. */
static double whole(void)
{
    double took, last;
    /* From the first that has begun: where processes share cores some begin late. */
    MPI_Barrier(MPI_COMM_WORLD);
    took = MPI_Wtime() - began;
    MPI_Allreduce(&took, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return last;
}

/* A single step. */
static void end(int step, int repeat) { taken[step][repeat] = whole(); }

/* Divides the whole among the steps of a new file; what it takes longer with another is that step. */
static void share(int extra, int repeat)
{
    double all = whole(), sums[OTHER + 1], sum = 0, plain = 0;
    MPI_Allreduce(mine, sums, OTHER + 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int s = 0; s <= OTHER; s++)
        sum += sums[s];
    if (extra < 0) {
        for (int s = OPEN; s <= CLOSE; s++)
            taken[s][repeat] = sum > 0 ? all * sums[s] / sum : 0;
        return;
    }
    all *= sum > 0 ? 1 - sums[OTHER] / sum : 0;
    for (int s = OPEN; s <= CLOSE; s++)
        plain += taken[s][repeat];
    taken[extra][repeat] = all > plain ? all - plain : 0;
}

static void say(const char *way, const char *sharing, const char *pattern, int step, int64_t bytes,
                int64_t calls)
{
    if (rank || taken[step][0] < 0)
        return;
    printf("%s %s %s %s %lld %lld", way, sharing, names[step], pattern, (long long)bytes,
           (long long)calls);
    for (int r = 0; r < repeats; r++)
        printf(" %.9f", taken[step][r]);
    printf("\n");
}

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s in %s failed\n", what, directory);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void path_of(char *into, size_t room, int shared)
{
    if (shared)
        snprintf(into, room, "%s/p3s-files.shared", directory);
    else
        snprintf(into, room, "%s/p3s-files.%d", directory, rank);
}

static void forget(void)
{
    for (int s = 0; s < STEPS; s++)
        taken[s][0] = -1;
}

struct file { FILE *stream; int fd; };

static struct file opened(const char *path, int stream, int flags, const char *mode)
{
    struct file f = {NULL, -1};
    if (stream)
        f.stream = fopen(path, mode);
    else
        f.fd = open(path, flags, 0666);
    check(stream ? f.stream != NULL : f.fd >= 0, "open");
    if (stream)
        f.fd = fileno(f.stream);
    return f;
}

static void closed(struct file f) { check((f.stream ? fclose(f.stream) : close(f.fd)) == 0, "close"); }

/* Opens, writes and closes a file; where it is synced, before it is closed. */
static void written(const char *path, int shared, int stream, int64_t each, int64_t calls, int sync)
{
    int64_t from = shared ? rank * each * calls : 0;
    begin();
    struct file f = opened(path, stream, O_CREAT | O_WRONLY | (shared ? 0 : O_TRUNC), "w");
    lap(OPEN);
    for (int64_t i = 0; i < calls; i++)
        if (stream)
            check(fwrite(buffer, 1, (size_t)each, f.stream) == (size_t)each, "fwrite");
        else
            check(pwrite(f.fd, buffer, (size_t)each, from + i * each) == each, "write");
    if (stream)
        fflush(f.stream);
    lap(WRITE);
    if (sync)
        check(fsync(f.fd) == 0, "fsync");
    lap(SYNC);
    closed(f);
    lap(CLOSE);
}

static void readings(const char *path, int shared, int stream, int64_t each, int64_t calls, int r)
{
    int64_t from = shared ? rank * each * calls : 0;
    begin();
    struct file f = opened(path, stream, O_RDONLY, "r");
    end(REOPEN, r);
    for (int cold = 0; cold < 2; cold++) {
        if (cold)
            posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED);
        if (stream)
            rewind(f.stream);
        begin();
        for (int64_t i = 0; i < calls; i++)
            if (stream)
                check(fread(buffer, 1, (size_t)each, f.stream) == (size_t)each, "fread");
            else
                check(pread(f.fd, buffer, (size_t)each, from + i * each) == each, "read");
        end(cold ? COLD : READ, r);
    }
    closed(f);
}

/* No file, or one that has nothing in it. */
static void emptied(const char *path, int shared, int keep)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if ((!shared || !rank) && (keep ? truncate(path, 0) : unlink(path)) < 0) {
        /* It is not there yet. */
    }
}

/* Through the C library: descriptors, or streams. */
static void through_posix(int shared, int stream, int64_t each, int64_t calls)
{
    char path[4096];
    path_of(path, sizeof path, shared);
    forget();
    for (int r = 0; r < repeats; r++) {
        emptied(path, shared, 0);
        written(path, shared, stream, each, calls, 0);
        share(-1, r);
        /* Closing a file that was truncated may begin to write it; those after wait for that, and
         * for more of it each time until the disk is what limits them. */
        for (int again = 0; again < AGAIN && !shared; again++)
            written(path, shared, stream, each, calls, 0);
        if (!shared)
            share(RENEW, r);
        written(path, shared, stream, each, calls, 1);      /* now it is on the disk */
        if (shared)
            emptied(path, shared, 1);
        written(path, shared, stream, each, calls, 1);
        share(SYNC, r);
        readings(path, shared, stream, each, calls, r);
    }
    for (int s = 0; s < STEPS; s++)
        say(stream ? "stdio" : "posix", shared ? "shared" : "own", "dense", s, each, calls);
}

static MPI_Info hints(const char *way)
{
    MPI_Info info;
    const char *text = !strcmp(way, "aggregated") ? "enable" : "disable";
    if (strcmp(way, "aggregated") && strcmp(way, "direct"))
        return MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", text);
    MPI_Info_set(info, "romio_cb_read", text);
    MPI_Info_set(info, "collective_buffering", !strcmp(way, "aggregated") ? "true" : "false");
    return info;
}

static void set_view(MPI_File f, MPI_Info info)
{
    MPI_Datatype view;
    MPI_Type_vector(2, PIECE, PIECE * size, MPI_BYTE, &view);
    MPI_Type_create_resized(view, 0, (MPI_Aint)2 * PIECE * size, &view);
    MPI_Type_commit(&view);
    MPI_File_set_view(f, (MPI_Offset)rank * PIECE, MPI_BYTE, view, "native", info);
    MPI_Type_free(&view);
}

/* Through MPI: alone ("mpi") or all together; strided: pieces of all ranks in turn. */
static void through_mpi(const char *way, int shared, int strided, int64_t each, int64_t calls)
{
    char path[4096];
    MPI_Comm comm = shared ? MPI_COMM_WORLD : MPI_COMM_SELF;
    MPI_Info info = hints(way);
    MPI_Offset from = shared && !strided ? rank * each * calls : 0;
    int all = strcmp(way, "mpi") != 0;
    path_of(path, sizeof path, shared);
    forget();
    for (int turn = 0; turn < 2 * repeats; turn++) {
        MPI_File f;
        int sync = turn % 2, r = turn / 2;
        emptied(path, shared, sync);
        begin();
        int rc = MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &f);
        check(rc == MPI_SUCCESS, "MPI_File_open");
        lap(OPEN);
        if (strided)
            set_view(f, info);
        lap(OTHER);
        for (int64_t i = 0; i < calls; i++)
            check((all ? MPI_File_write_at_all : MPI_File_write_at)(f, from + i * each, buffer,
                  (int)each, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_File_write");
        lap(WRITE);
        if (sync)
            MPI_File_sync(f);
        lap(SYNC);
        MPI_File_close(&f);
        lap(CLOSE);
        share(sync ? SYNC : -1, r);
        if (!sync)
            continue;
        rc = MPI_File_open(comm, path, MPI_MODE_RDONLY, info, &f);
        check(rc == MPI_SUCCESS, "MPI_File_open");
        if (strided)
            set_view(f, info);
        begin();
        for (int64_t i = 0; i < calls; i++)
            check((all ? MPI_File_read_at_all : MPI_File_read_at)(f, from + i * each, buffer,
                  (int)each, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_File_read");
        end(READ, r);
        MPI_File_close(&f);
    }
    for (int s = 0; s < STEPS; s++)
        say(way, shared ? "shared" : "own", strided ? "strided" : "dense", s, each, calls);
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    directory = argc > 1 ? argv[1] : ".";
    most = argc > 2 ? atoll(argv[2]) : 8 << 20;
    repeats = argc > 3 ? atoi(argv[3]) : 5;
    repeats = repeats < MOST ? repeats : MOST;
    buffer = malloc(LARGE);
    check(buffer != NULL, "memory");
    memset(buffer, rank + 1, LARGE);
    int64_t large = most < LARGE ? most : LARGE;
    struct { int64_t each, calls; } sizes[] = {{4096, 256}, {large, most / large}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t each = sizes[k].each, calls = sizes[k].calls;
        through_posix(0, 0, each, calls);
        through_posix(1, 0, each, calls);
        through_posix(0, 1, k ? each : 64, k ? calls : 16384);
        if (argc > 4)           /* the C library alone */
            continue;
        through_mpi("mpi", 0, 0, each, calls);
        through_mpi("mpi", 1, 0, each, calls);
        if (!k)
            each = 2 * PIECE, calls = 8;
        for (int strided = 0; strided < 2; strided++) {
            through_mpi("collective", 1, strided, each, calls);
            through_mpi("aggregated", 1, strided, each, calls);
            through_mpi("direct", 1, strided, each, calls);
        }
    }
    for (int shared = 0; shared < 2; shared++) {
        path_of(path, sizeof path, shared);
        MPI_Barrier(MPI_COMM_WORLD);
        if (!shared || !rank)
            unlink(path);
    }
    free(buffer);
    MPI_Finalize();
    return 0;
}
