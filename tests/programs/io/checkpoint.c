/* Writes a checkpoint again and again: checkpoint DIR own|shared|mpi|collective MIB TIMES SYNC [PAUSE_MS]
 *
 * own: a file of each process through write; shared: one file through pwrite; mpi: one file, each
 * process alone; collective: all together. Rank 0 prints how long one checkpoint took, in the mean,
 * from the first process that began until the last was done. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void need(int good, const char *what)
{
    if (!good) {
        perror(what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    enum { PIECE = 1 << 20 };
    char path[4096];
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    need(argc > 5, "usage");
    const char *mode = argv[2];
    int pieces = atoi(argv[3]), times = atoi(argv[4]), sync = atoi(argv[5]);
    long pause_ns = argc > 6 ? atol(argv[6]) * 1000000 : 0;
    char *data = malloc(PIECE);
    double sum = 0, least = 1e30;
    memset(data, rank + 1, PIECE);
    int own = !strcmp(mode, "own");
    snprintf(path, sizeof path, own ? "%s/checkpoint.%d" : "%s/checkpoint", argv[1], rank);
    for (int t = 0; t < times; t++) {
        struct timespec pause = {pause_ns / 1000000000, pause_ns % 1000000000};
        nanosleep(&pause, NULL);
        if (!own && !rank && truncate(path, 0) < 0) {
            /* The first time there is none. */
        }
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        off_t from = own ? 0 : (off_t)rank * pieces * PIECE;
        if (own || !strcmp(mode, "shared")) {
            int fd = open(path, O_CREAT | O_WRONLY | (own ? O_TRUNC : 0), 0666);
            need(fd >= 0, path);
            for (int i = 0; i < pieces; i++)
                need(pwrite(fd, data, PIECE, from + (off_t)i * PIECE) == PIECE, "pwrite");
            if (sync)
                need(fsync(fd) == 0, "fsync");
            close(fd);
        } else {
            MPI_File f;
            MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &f);
            for (int i = 0; i < pieces; i++)
                (strcmp(mode, "mpi") ? MPI_File_write_at_all : MPI_File_write_at)(
                    f, from + (MPI_Offset)i * PIECE, data, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
            if (sync)
                MPI_File_sync(f);
            MPI_File_close(&f);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        double took = MPI_Wtime() - begin, whole;
        /* From the first that began: where processes share cores some leave a barrier late. */
        MPI_Allreduce(&took, &whole, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        sum += whole;
        least = whole < least ? whole : least;
    }
    if (!rank)
        printf("checkpoint %.6f s, least %.6f s, %d times, %d MiB of each of %d\n", sum / times,
               least, times, pieces, size);
    if (own || !rank)
        unlink(path);
    MPI_Finalize();
    return 0;
}
