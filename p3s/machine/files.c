/* What reading and writing files costs: every rank does the same, rank 0 prints a line for each.
 *
 *   files DIRECTORY BYTES REPEATS [posix]
 *
 * Line: way sharing what pattern bytes calls seconds... (a number for each repeat). Seconds are those
 * from a barrier until the last rank is done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, PIECE = 65536 };

static int rank, size, repeats;
static const char *directory;
static char *buffer;
static int64_t most;
static double taken[8][MOST];
static const char *const names[] = {"open", "write", "sync", "close", "reopen", "read", "cold"};
enum { OPEN, WRITE, SYNC, CLOSE, REOPEN, READ, COLD, STEPS };

static double began;
static void begin(void) { MPI_Barrier(MPI_COMM_WORLD); began = MPI_Wtime(); }

static void end(int step, int repeat)
{
    double mine, last;
    /* From the first that has begun: where processes share cores some begin late. */
    MPI_Barrier(MPI_COMM_WORLD);
    mine = MPI_Wtime() - began;
    MPI_Allreduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    taken[step][repeat] = last;
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

/* Through the C library: descriptors, or streams. */
static void through_posix(int shared, int stream, int64_t each, int64_t calls)
{
    char path[4096];
    path_of(path, sizeof path, shared);
    int64_t from = shared ? rank * each * calls : 0;
    forget();
    for (int r = 0; r < repeats; r++) {
        FILE *f = NULL;
        int fd = -1;
        if (shared && !rank && truncate(path, 0) < 0) {
            /* It is not there yet. */
        }
        begin();
        if (stream)
            f = fopen(path, "w");
        else
            fd = open(path, O_CREAT | O_WRONLY | (shared ? 0 : O_TRUNC), 0666);
        end(OPEN, r);
        check(stream ? f != NULL : fd >= 0, "open");
        begin();
        for (int64_t i = 0; i < calls; i++)
            if (stream)
                check(fwrite(buffer, 1, (size_t)each, f) == (size_t)each, "fwrite");
            else
                check(pwrite(fd, buffer, (size_t)each, from + i * each) == each, "write");
        if (stream)
            fflush(f);
        end(WRITE, r);
        begin();
        check(fsync(stream ? fileno(f) : fd) == 0, "fsync");
        end(SYNC, r);
        begin();
        check((stream ? fclose(f) : close(fd)) == 0, "close");
        end(CLOSE, r);
        begin();
        if (stream)
            f = fopen(path, "r");
        else
            fd = open(path, O_RDONLY);
        end(REOPEN, r);
        for (int cold = 0; cold < 2; cold++) {
            if (cold)
                posix_fadvise(stream ? fileno(f) : fd, 0, 0, POSIX_FADV_DONTNEED);
            if (stream)
                rewind(f);
            begin();
            for (int64_t i = 0; i < calls; i++)
                if (stream)
                    check(fread(buffer, 1, (size_t)each, f) == (size_t)each, "fread");
                else
                    check(pread(fd, buffer, (size_t)each, from + i * each) == each, "read");
            end(cold ? COLD : READ, r);
        }
        if (stream)
            fclose(f);
        else
            close(fd);
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
    for (int r = 0; r < repeats; r++) {
        MPI_File f;
        begin();
        int rc = MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &f);
        end(OPEN, r);
        check(rc == MPI_SUCCESS, "MPI_File_open");
        MPI_File_set_size(f, 0);
        if (strided) {
            MPI_Datatype view;
            MPI_Type_vector(2, PIECE, PIECE * size, MPI_BYTE, &view);
            MPI_Type_create_resized(view, 0, (MPI_Aint)2 * PIECE * size, &view);
            MPI_Type_commit(&view);
            MPI_File_set_view(f, (MPI_Offset)rank * PIECE, MPI_BYTE, view, "native", info);
            MPI_Type_free(&view);
        }
        begin();
        for (int64_t i = 0; i < calls; i++)
            check((all ? MPI_File_write_at_all : MPI_File_write_at)(f, from + i * each, buffer,
                  (int)each, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_File_write");
        end(WRITE, r);
        begin();
        MPI_File_sync(f);
        end(SYNC, r);
        begin();
        for (int64_t i = 0; i < calls; i++)
            check((all ? MPI_File_read_at_all : MPI_File_read_at)(f, from + i * each, buffer,
                  (int)each, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_File_read");
        end(READ, r);
        begin();
        MPI_File_close(&f);
        end(CLOSE, r);
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
    buffer = malloc((size_t)most);
    check(buffer != NULL, "memory");
    memset(buffer, rank + 1, (size_t)most);
    struct { int64_t each, calls; } sizes[] = {{4096, 256}, {1 << 20, most >> 20}};
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
