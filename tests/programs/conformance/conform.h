/* A program under test counts its own MPI calls, next to each call, and notes what it saw.
 * Everything goes into output-RANK.txt: a line "counts MPI_X=EVENTS/BYTES ..." (bytes "-" where
 * the program does not say), a line "polls N" and the lines of say(). */
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPS 256

static int me, p;
static long polls;
static struct { const char *op; long events, bytes; } counts[MAX_OPS];
static int n_counts;
static char said[1 << 16];
static size_t said_bytes;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void count(const char *op, long bytes)
{
    int i = 0;
    pthread_mutex_lock(&count_lock);
    while (i < n_counts && strcmp(counts[i].op, op))
        i++;
    if (i == n_counts)
        counts[n_counts++].op = op;
    counts[i].events++;
    counts[i].bytes = bytes < 0 || counts[i].bytes < 0 ? -1 : counts[i].bytes + bytes;
    pthread_mutex_unlock(&count_lock);
}

/* A call that returns an error is no event. */
static inline int called(const char *op, long bytes, int rc)
{
    if (rc == MPI_SUCCESS)
        count(op, bytes);
    return rc;
}

#define DO(op, bytes, ...) called("MPI_" #op, bytes, MPI_##op(__VA_ARGS__))

/* A completion call: bytes is how many requests it completed. */
#define DONE(op, n, ...) called("MPI_" #op, n, MPI_##op(__VA_ARGS__))

static inline int exchanged(const char *op, long sent, long received, int rc)
{
    if (rc == MPI_SUCCESS) {
        count(op, sent);
        count("MPI_Sendrecv_recv", received);
    }
    return rc;
}

/* Loops until a call that may find nothing has found something. */
#define POLL(op, n, flag, ...)                                                                    \
    do {                                                                                          \
        flag = 0;                                                                                 \
        MPI_##op(__VA_ARGS__);                                                                    \
        if (flag)                                                                                 \
            count("MPI_" #op, n);                                                                 \
        else                                                                                      \
            polls++;                                                                              \
    } while (!flag)

static inline void say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int room = (int)(sizeof said - said_bytes);
    int length = vsnprintf(said + said_bytes, (size_t)room, format, values);
    va_end(values);
    if (length >= room - 1)
        abort();
    said_bytes += (size_t)length;
    said[said_bytes++] = '\n';
}

static inline int class_of(int rc)
{
    int class = rc;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    return class;
}

/* Not for probes: MPICH does not say there that nothing was cancelled. */
static inline void say_status(const char *what, MPI_Status *status, MPI_Datatype type)
{
    int n = -1, cancelled = -1;
    MPI_Get_count(status, type, &n);
    MPI_Test_cancelled(status, &cancelled);
    say("%s: source %d tag %d count %d cancelled %d", what, status->MPI_SOURCE, status->MPI_TAG, n,
        cancelled);
}

static inline void say_found(const char *what, MPI_Status *status, MPI_Datatype type)
{
    int n = -1;
    MPI_Get_count(status, type, &n);
    say("%s: source %d tag %d count %d", what, status->MPI_SOURCE, status->MPI_TAG, n);
}

/* For numbers only: the same on every machine. */
static inline unsigned long checksum(const void *data, size_t bytes)
{
    unsigned long sum = 5381;
    for (size_t i = 0; i < bytes; i++)
        sum = sum * 33 + ((const unsigned char *)data)[i];
    return sum;
}

static inline void start_counting(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    count("MPI_Init", 0);
}

static inline void begin(void)
{
    MPI_Init(NULL, NULL);
    start_counting();
}

/* Writes everything down: the bytes of a completion call are not compared. */
static inline void write_down(void)
{
    char name[64];
    count("MPI_Finalize", 0);
    snprintf(name, sizeof name, "output-%06d.txt", me);
    FILE *file = fopen(name, "w");
    if (!file)
        MPI_Abort(MPI_COMM_WORLD, 2);
    fprintf(file, "counts");
    for (int i = 0; i < n_counts; i++) {
        fprintf(file, " %s=%ld/", counts[i].op, counts[i].events);
        if (counts[i].bytes < 0)
            fprintf(file, "-");
        else
            fprintf(file, "%ld", counts[i].bytes);
    }
    fprintf(file, "\npolls %ld\n", polls);
    fwrite(said, 1, said_bytes, file);
    fclose(file);
    printf("rank %d of %d: %lx\n", me, p, checksum(said, said_bytes) & 0xffffffff);
    fflush(stdout);
}

static inline void end(void)
{
    write_down();
    MPI_Finalize();
}
