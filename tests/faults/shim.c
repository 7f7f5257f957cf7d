/* Faults at the N-th operation on files below a directory, for LD_PRELOAD: P3S_FAULT=KIND:N:DIR.
 * Only in the process that it was set for, not in those that it starts. KIND count writes the
 * number of operations to the file in P3S_FAULT_COUNT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum op { OPEN, WRITE, SYNC, RENAME, OTHER };

static char kind[16], directory[PATH_MAX];
static long at, seen;
static int armed;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("P3S_FAULT");
    if (!text || getenv("P3S_FAULT_OWNER"))
        return;
    if (sscanf(text, "%15[^:]:%ld:%4095[^\n]", kind, &at, directory) == 3)
        armed = 1;
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
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return below(path);
}

/* Returns 0, or -1 with errno set: the operation fails. */
static int fault(enum op op, int fd)
{
    int number = ++seen >= at;
    if (!number || !strcmp(kind, "count"))
        return 0;
    if (seen == at) {
        if (!strcmp(kind, "kill"))
            kill(getpid(), SIGKILL);
        if (!strcmp(kind, "stop"))
            kill(getpid(), SIGSTOP);
        if (!strcmp(kind, "term"))
            kill(getpid(), SIGTERM);
        if (!strcmp(kind, "int"))
            kill(getpid(), SIGINT);
    }
    if (!strcmp(kind, "slow"))
        usleep(20000);
    int grows = op == OPEN || op == WRITE || op == OTHER;
    if (!strcmp(kind, "full") && grows)
        return errno = ENOSPC, -1;
    if (!strcmp(kind, "quota") && grows)
        return errno = EDQUOT, -1;
    if (!strcmp(kind, "readonly") && op != SYNC)
        return errno = EROFS, -1;
    static int once;
    if (!strcmp(kind, "close") && op == WRITE && !once++)
        close(fd);
    if (!strcmp(kind, "rename") && op == RENAME && !once++)
        return errno = ESTALE, -1;
    return 0;
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

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
        if (armed && flags & O_CREAT && below(path) && fault(OPEN, -1))                          \
            return -1;                                                                           \
        return REAL(int, name, const char *, int, ...)(path, flags, mode);                       \
    }
OPENER(open)
OPENER(open64)

#define WRITER(name, parameters, types, arguments)                                               \
    ssize_t name parameters                                                                      \
    {                                                                                            \
        if (armed && below_fd(fd) && fault(WRITE, fd))                                           \
            return -1;                                                                           \
        return ((ssize_t (*) types)dlsym(RTLD_NEXT, #name)) arguments;                           \
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
