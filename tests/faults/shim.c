/* Faults at the N-th operation, for LD_PRELOAD: P3S_FAULT=KIND:N:DIR, or KIND:N:@R:WHAT.
 *
 * With a directory: operations on files below it, in the process that it was set for, not in those
 * that it starts. With @R: in rank R of an MPI job; WHAT is files (any file or descriptor: most
 * are made in MPI_Init and MPI_Finalize) or clock (reads of it: the tracer and the replay do so at
 * every call of MPI). KIND count writes the number of operations to the file P3S_FAULT_COUNT;
 * P3S_FAULT_DONE is made when the fault has happened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum op { OPEN, WRITE, SYNC, RENAME, OTHER, CLOCK };
enum { DAY = 86400, HOUR = 3600, ROOM = 1 << 20 };

static char kind[16], directory[PATH_MAX];
static long at, seen;
static int armed, in_rank, clocks;
/* Seconds that the clocks are off by since the fault. */
static long wall_off, mono_off;

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

/* Returns whether this is rank R of a job, and the program itself: not the shell before it. */
static int is_rank(int wanted)
{
    static const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    const char *own = strrchr(self, '/');
    if (!own || !strcmp(own, "/env") || !strcmp(own, "/sh") || !strcmp(own, "/dash")
        || !strcmp(own, "/bash"))
        return 0;
    for (int i = 0; i < 3; i++) {
        const char *number = getenv(names[i]);
        if (number)
            return atoi(number) == wanted;
    }
    return 0;
}

/* Also called by a child of a process that had no fault when this was loaded. */
__attribute__((constructor)) void p3s_fault_begin(void)
{
    const char *text = getenv("P3S_FAULT");
    if (!text || sscanf(text, "%15[^:]:%ld:%4095[^\n]", kind, &at, directory) != 3)
        return;
    if (*directory == '@') {
        const char *done = getenv("P3S_FAULT_DONE");
        if (done && !access(done, F_OK))
            return; /* one fault, not one in each of the jobs */
        clocks = strstr(directory, ":clock") != NULL;
        armed = in_rank = is_rank(atoi(directory + 1));
        return;
    }
    armed = !getenv("P3S_FAULT_OWNER");
    setenv("P3S_FAULT_OWNER", "1", 1);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("P3S_FAULT_COUNT");
    if (!armed || !path || strcmp(kind, "count"))
        return;
    armed = 0;
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "%ld\n", seen);
        fclose(file);
    }
}

static int below(const char *path)
{
    if (in_rank)
        return !clocks;
    char whole[2 * PATH_MAX], here[PATH_MAX];
    if (*path == '/')
        snprintf(whole, sizeof whole, "%s", path);
    else if (getcwd(here, sizeof here))
        snprintf(whole, sizeof whole, "%s/%s", here, path);
    else
        return 0;
    return !strncmp(whole, directory, strlen(directory));
}

static int below_fd(int fd)
{
    if (in_rank)
        return !clocks;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return below(path);
}

static void happened(void)
{
    const char *path = getenv("P3S_FAULT_DONE");
    int fd = path ? REAL(int, open, const char *, int, ...)(path, O_WRONLY | O_CREAT, 0600) : -1;
    if (fd >= 0)
        close(fd);
}

/* From now on the process gets no more memory than it has, but for a little. */
static void no_more_memory(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld", &pages) == 1) {
        rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ROOM;
        setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
    }
    if (file)
        fclose(file);
}

/* A descriptor of the rank is closed behind its back: the N-th it has, or a later one. */
static void close_one(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = 3 + (int)((at + i) % 64);
        if (fcntl(fd, F_GETFD) >= 0) {
            close(fd);
            return;
        }
    }
}

static void once(void)
{
    static const struct {
        const char *kind;
        int number;
    } sent[] = {{"kill", SIGKILL}, {"stop", SIGSTOP}, {"freeze", SIGSTOP},
                {"term", SIGTERM}, {"int", SIGINT}};
    happened();
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        if (!strcmp(kind, sent[i].kind))
            kill(getpid(), sent[i].number);
    if (!strcmp(kind, "end launcher"))
        kill(getppid(), SIGTERM);
    if (!strcmp(kind, "kill launcher"))
        kill(getppid(), SIGKILL);
    if (!strcmp(kind, "later"))
        wall_off = DAY;
    if (!strcmp(kind, "earlier"))
        wall_off = -DAY;
    if (!strcmp(kind, "pause"))
        mono_off = HOUR;
    if (!strcmp(kind, "memory"))
        no_more_memory();
    if (!strcmp(kind, "close") && in_rank)
        close_one();
}

/* Returns 0, or -1 with errno set: the operation fails. */
static int fault(enum op op, int fd)
{
    int number = ++seen >= at;
    if (!number || !strcmp(kind, "count"))
        return 0;
    if (seen == at)
        once();
    if (!strcmp(kind, "slow"))
        usleep(op == CLOCK ? 2000 : 20000);
    int grows = op == OPEN || op == WRITE || op == OTHER;
    if (!strcmp(kind, "full") && grows)
        return errno = ENOSPC, -1;
    if (!strcmp(kind, "quota") && grows)
        return errno = EDQUOT, -1;
    if (!strcmp(kind, "readonly") && op != SYNC)
        return errno = EROFS, -1;
    static int done;
    if (!strcmp(kind, "close") && op == WRITE && !in_rank && !done++)
        close(fd);
    if (!strcmp(kind, "rename") && op == RENAME && !done++)
        return errno = ESTALE, -1;
    return 0;
}

/* What is written while the wall clock is off has the date that it says. */
static void date(int fd)
{
    if (!wall_off || in_rank)
        return;
    struct timespec now[2];
    REAL(int, clock_gettime, clockid_t, struct timespec *)(CLOCK_REALTIME, now);
    now->tv_sec += wall_off;
    now[1] = now[0];
    futimens(fd, now);
}

#define OPENER(name)                                                                             \
    int name(const char *path, int flags, ...)                                                   \
    {                                                                                            \
        mode_t mode = 0;                                                                         \
        if (flags & O_CREAT) {                                                                   \
            va_list more;                                                                        \
            va_start(more, flags);                                                               \
            mode = va_arg(more, mode_t);                                                         \
            va_end(more);                                                                        \
        }                                                                                        \
        if (armed && (in_rank || flags & O_CREAT) && below(path) && fault(OPEN, -1))                          \
            return -1;                                                                           \
        int fd = REAL(int, name, const char *, int, ...)(path, flags, mode);                     \
        if (armed && fd >= 0 && flags & O_CREAT && below(path))                                  \
            date(fd);                                                                            \
        return fd;                                                                               \
    }
OPENER(open)
OPENER(open64)

#define WRITER(name, parameters, types, arguments)                                               \
    ssize_t name parameters                                                                      \
    {                                                                                            \
        if (armed && below_fd(fd) && fault(WRITE, fd))                                           \
            return -1;                                                                           \
        ssize_t written = ((ssize_t (*) types)dlsym(RTLD_NEXT, #name)) arguments;                \
        if (armed && wall_off && below_fd(fd))                                                   \
            date(fd);                                                                            \
        return written;                                                                          \
    }
WRITER(write, (int fd, const void *data, size_t size), (int, const void *, size_t),
       (fd, data, size))
WRITER(pwrite, (int fd, const void *data, size_t size, off_t place),
       (int, const void *, size_t, off_t), (fd, data, size, place))
WRITER(pwrite64, (int fd, const void *data, size_t size, off64_t place),
       (int, const void *, size_t, off64_t), (fd, data, size, place))
WRITER(writev, (int fd, const struct iovec *parts, int number), (int, const struct iovec *, int),
       (fd, parts, number))

int fsync(int fd)
{
    if (armed && below_fd(fd) && fault(SYNC, fd))
        return -1;
    return REAL(int, fsync, int)(fd);
}

int rename(const char *from, const char *to)
{
    if (armed && below(to) && fault(RENAME, -1))
        return -1;
    return REAL(int, rename, const char *, const char *)(from, to);
}

int renameat2(int one, const char *from, int other, const char *to, unsigned flags)
{
    if (armed && below(to) && fault(RENAME, -1))
        return -1;
    return REAL(int, renameat2, int, const char *, int, const char *, unsigned)
        (one, from, other, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    if (armed && below(path) && fault(OTHER, -1))
        return -1;
    return REAL(int, mkdir, const char *, mode_t)(path, mode);
}

/* ---- clocks: what is waited for until a time of them is what the system takes for it ---------- */

static long off_of(clockid_t clock)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return wall_off;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        return mono_off;
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = REAL(int, clock_gettime, clockid_t, struct timespec *);
    if (armed && in_rank && clocks)
        fault(CLOCK, -1);
    int failed = real(clock, time);
    if (!failed)
        time->tv_sec += off_of(clock);
    return failed;
}

time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int failed = REAL(int, gettimeofday, struct timeval *, void *)(now, zone);
    if (!failed)
        now->tv_sec += wall_off;
    return failed;
}

static struct timespec of_system(const struct timespec *until, long off)
{
    return (struct timespec){until->tv_sec - off, until->tv_nsec};
}

/* Python sleeps until a time, not for one. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    struct timespec real = of_system(until, flags & TIMER_ABSTIME ? off_of(clock) : 0);
    return REAL(int, clock_nanosleep, clockid_t, int, const struct timespec *, struct timespec *)(
        clock, flags, &real, left);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    struct timespec real = of_system(until, off_of(clock));
    return REAL(int, sem_clockwait, sem_t *, clockid_t, const struct timespec *)(sem, clock, &real);
}

int sem_timedwait(sem_t *sem, const struct timespec *until)
{
    struct timespec real = of_system(until, wall_off);
    return REAL(int, sem_timedwait, sem_t *, const struct timespec *)(sem, &real);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    struct timespec real = of_system(until, off_of(clock));
    return REAL(int, pthread_cond_clockwait, pthread_cond_t *, pthread_mutex_t *, clockid_t,
                const struct timespec *)(cond, mutex, clock, &real);
}

/* The condition knows its clock, this does not: no machine has been on for thirty years. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    struct timespec real = of_system(until, until->tv_sec < 1000000000 ? mono_off : wall_off);
    int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
        (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlvsym(
            RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!wait) /* dlsym would find the oldest version, whose conditions are others */
        wait = REAL(int, pthread_cond_timedwait, pthread_cond_t *, pthread_mutex_t *,
                    const struct timespec *);
    return wait(cond, mutex, &real);
}
