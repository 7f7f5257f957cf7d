/* Every call of the C library that is recorded, and what is not; each counts itself.
 *
 * Rank 0 .. p - 1 print lines "count RANK POSIX_x CALLS BYTES". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static struct { const char *op; long calls, bytes; } counts[32];

static void count(const char *op, long bytes)
{
    int i = 0;
    while (counts[i].op && strcmp(counts[i].op, op))
        i++;
    counts[i].op = op;
    counts[i].calls++;
    counts[i].bytes += bytes;
}

static int signal_fd;
static void handler(int s) { (void)s; if (write(signal_fd, "signal", 6) < 0) abort(); }

int main(int argc, char **argv)
{
    static char data[100000];
    char path[256];
    int rank, pipes[2];
    FILE *before = fopen("before.dat", "w");    /* not between MPI_Init and MPI_Finalize */
    fprintf(before, "x");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "posix.%d", rank);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0666);
    count("POSIX_open", 0);
    for (int i = 0; i < 10; i++)
        count("POSIX_write", write(fd, data, 1000 + i));
    count("POSIX_pwrite", pwrite(fd, data, 5000, 50000));
    struct iovec v[2] = {{data, 10}, {data + 100, 20}};
    count("POSIX_writev", writev(fd, v, 2));
    count("POSIX_fsync", fsync(fd) * 0L);
    count("POSIX_fdatasync", fdatasync(fd) * 0L);
    lseek(fd, 0, SEEK_SET);
    count("POSIX_read", read(fd, data, 3000));
    count("POSIX_readv", readv(fd, v, 2));
    count("POSIX_pread", pread(fd, data, 700, 50000));
    count("POSIX_pread", pread(fd, data, 700, 1L << 40));   /* behind the end: nothing */
    signal_fd = fd;
    signal(SIGUSR1, handler);
    raise(SIGUSR1);                                     /* not recorded */
    count("POSIX_close", close(fd) * 0L);
    if (write(fd, data, 1) >= 0)                        /* closed: an error */
        abort();
    FILE *f = fopen(path, "w+");
    count("POSIX_fopen", 0);
    for (int i = 0; i < 2000; i++)
        count("POSIX_fwrite", (long)fwrite(data, 8, 3, f) * 8);
    count("POSIX_fprintf", fprintf(f, "%d and %d\n", 17, 4));
    count("POSIX_fflush", fflush(f) * 0L);
    rewind(f);
    count("POSIX_fread", (long)fread(data, 4, 1000, f) * 4);
    count("POSIX_fclose", fclose(f) * 0L);
    if (pipe(pipes) || write(pipes[1], data, 100) != 100 || read(pipes[0], data, 100) != 100)
        abort();                                        /* no file */
    fd = open("/dev/null", O_WRONLY);
    if (write(fd, data, 100) != 100)
        abort();
    close(fd);
    for (int i = 0; counts[i].op; i++)
        printf("count %d %s %ld %ld\n", rank, counts[i].op, counts[i].calls, counts[i].bytes);
    fflush(stdout);
    MPI_Finalize();
    fclose(before);
    unlink(path);
    return 0;
}
