/* The functions of the C library that are wrapped: each calls the one behind it. */
#include "p3s_posix.h"

#ifndef P3S_INSIDE_PROGRAM      /* linked into the program, they would be the C library's own */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#undef fread
#undef fread_unlocked
#undef fwrite_unlocked
#undef fwrite
#undef fputs

/* Looked up before main: it may not be done in a signal handler. */
#define FUNCTIONS(X)                                                                               \
    X(read) X(write) X(pread) X(pwrite) X(pread64) X(pwrite64) X(readv) X(writev) X(preadv)        \
    X(pwritev) X(preadv64) X(pwritev64) X(fsync) X(fdatasync) X(open) X(open64) X(openat)          \
    X(openat64) X(creat) X(creat64) X(close) X(dup2) X(dup3) X(fopen) X(fopen64) X(fclose)         \
    X(fread) X(fwrite) X(fread_unlocked) X(fwrite_unlocked) X(fflush) X(fputs) X(vfprintf)         \
    X(__vfprintf_chk) X(__read_chk) X(__pread_chk) X(__pread64_chk) X(__fread_chk) X(__open_2)     \
    X(__open64_2) X(__openat_2) X(__openat64_2)

int __vfprintf_chk(FILE *, int, const char *, va_list);
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

#define DECLARE(name) __typeof__(&name) f_##name;
static struct { FUNCTIONS(DECLARE) } real;

#define LOOK_UP(name) real.f_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name);
__attribute__((constructor(101))) static void look_up(void) { FUNCTIONS(LOOK_UP) }

#define REAL(name)                                                                                 \
    (__builtin_expect(!real.f_##name, 0)                                                           \
         ? (real.f_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name)) : real.f_##name)

/* A call that moves data or waits for it, on a descriptor. */
#define MOVED(type, op, name, fd, moved, ...)                                               \
    {                                                                                              \
        struct p3s_io i;                                                                           \
        if (!p3s_io_enter(&i, P3S_OP_POSIX_##op, fd, P3S_RA, P3S_FA))                             \
            return REAL(name)(__VA_ARGS__);                                                        \
        type got = REAL(name)(__VA_ARGS__);                                                        \
        p3s_io_leave(&i, (int64_t)(moved));                                                        \
        return got;                                                                                \
    }

#define VECTOR const struct iovec *v, int n

P3S_EXPORT ssize_t read(int fd, void *b, size_t n) MOVED(ssize_t, read, read, fd, got, fd, b, n)
P3S_EXPORT ssize_t write(int fd, const void *b, size_t n)
    MOVED(ssize_t, write, write, fd, got, fd, b, n)
P3S_EXPORT ssize_t readv(int fd, VECTOR) MOVED(ssize_t, readv, readv, fd, got, fd, v, n)
P3S_EXPORT ssize_t writev(int fd, VECTOR) MOVED(ssize_t, writev, writev, fd, got, fd, v, n)
P3S_EXPORT ssize_t __read_chk(int fd, void *b, size_t n, size_t room)
    MOVED(ssize_t, read, __read_chk, fd, got, fd, b, n, room)

/* At an offset that is given: p3s_io_at keeps it. */
#define AT(type, op, name, fd, offset, ...)                                                        \
    {                                                                                              \
        struct p3s_io i;                                                                           \
        if (!p3s_io_enter(&i, P3S_OP_POSIX_##op, fd, P3S_RA, P3S_FA))                                 \
            return REAL(name)(__VA_ARGS__);                                                        \
        type got = REAL(name)(__VA_ARGS__);                                                        \
        p3s_io_at((int64_t)(offset), (int64_t)got);                                            \
        p3s_io_leave(&i, (int64_t)got);                                                            \
        return got;                                                                                \
    }

P3S_EXPORT ssize_t pread(int fd, void *b, size_t n, off_t o)
    AT(ssize_t, pread, pread, fd, o, fd, b, n, o)
P3S_EXPORT ssize_t pread64(int fd, void *b, size_t n, off64_t o)
    AT(ssize_t, pread, pread64, fd, o, fd, b, n, o)
P3S_EXPORT ssize_t pwrite(int fd, const void *b, size_t n, off_t o)
    AT(ssize_t, pwrite, pwrite, fd, o, fd, b, n, o)
P3S_EXPORT ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o)
    AT(ssize_t, pwrite, pwrite64, fd, o, fd, b, n, o)
P3S_EXPORT ssize_t preadv(int fd, VECTOR, off_t o)
    AT(ssize_t, pread, preadv, fd, o, fd, v, n, o)
P3S_EXPORT ssize_t preadv64(int fd, VECTOR, off64_t o)
    AT(ssize_t, pread, preadv64, fd, o, fd, v, n, o)
P3S_EXPORT ssize_t pwritev(int fd, VECTOR, off_t o)
    AT(ssize_t, pwrite, pwritev, fd, o, fd, v, n, o)
P3S_EXPORT ssize_t pwritev64(int fd, VECTOR, off64_t o)
    AT(ssize_t, pwrite, pwritev64, fd, o, fd, v, n, o)
P3S_EXPORT ssize_t __pread_chk(int fd, void *b, size_t n, off_t o, size_t room)
    AT(ssize_t, pread, __pread_chk, fd, o, fd, b, n, o, room)
P3S_EXPORT ssize_t __pread64_chk(int fd, void *b, size_t n, off64_t o, size_t room)
    AT(ssize_t, pread, __pread64_chk, fd, o, fd, b, n, o, room)

P3S_EXPORT int fsync(int fd) MOVED(int, fsync, fsync, fd, 0, fd)
P3S_EXPORT int fdatasync(int fd) MOVED(int, fdatasync, fdatasync, fd, 0, fd)

/* ---- opening and closing ------------------------------------------------------------------- */

#define OPENED(op, name, drops, ...)                                                                      \
    {                                                                                              \
        struct p3s_io i;                                                                           \
        bool there = p3s_io_opening(&i, P3S_OP_POSIX_##op, drops, P3S_RA, P3S_FA);           \
        int got = REAL(name)(__VA_ARGS__);                                                         \
        if (there)                                                                                 \
            p3s_io_opened(&i, got);                                                                \
        else                                                                                       \
            p3s_file_forget(got);                                                                  \
        return got;                                                                                \
    }

#define DROPS(flags) (((flags) & O_TRUNC) != 0)

/* Only then there is a third argument. */
#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode = va_arg(list, mode_t);                                                               \
        va_end(list);                                                                              \
    }

P3S_EXPORT int open(const char *p, int flags, ...)
{
    MODE(flags)
    OPENED(open, open, DROPS(flags), p, flags, mode)
}

P3S_EXPORT int open64(const char *p, int flags, ...)
{
    MODE(flags)
    OPENED(open, open64, DROPS(flags), p, flags, mode)
}

P3S_EXPORT int openat(int at, const char *p, int flags, ...)
{
    MODE(flags)
    OPENED(open, openat, DROPS(flags), at, p, flags, mode)
}

P3S_EXPORT int openat64(int at, const char *p, int flags, ...)
{
    MODE(flags)
    OPENED(open, openat64, DROPS(flags), at, p, flags, mode)
}

P3S_EXPORT int creat(const char *p, mode_t mode) OPENED(open, creat, true, p, mode)
P3S_EXPORT int creat64(const char *p, mode_t mode) OPENED(open, creat64, true, p, mode)
P3S_EXPORT int __open_2(const char *p, int flags) OPENED(open, __open_2, DROPS(flags), p, flags)
P3S_EXPORT int __open64_2(const char *p, int flags) OPENED(open, __open64_2, DROPS(flags), p, flags)
P3S_EXPORT int __openat_2(int at, const char *p, int f) OPENED(open, __openat_2, DROPS(f), at, p, f)
P3S_EXPORT int __openat64_2(int at, const char *p, int f) OPENED(open, __openat64_2, DROPS(f), at, p, f)

P3S_EXPORT int close(int fd)
{
    struct p3s_io i;
    if (!p3s_io_enter(&i, P3S_OP_POSIX_close, fd, P3S_RA, P3S_FA)) {
        p3s_file_forget(fd);
        return REAL(close)(fd);
    }
    p3s_file_forget(fd);
    int got = REAL(close)(fd);
    p3s_io_leave(&i, 0);
    return got;
}

P3S_EXPORT int dup2(int from, int to)
{
    p3s_file_forget(to);
    return REAL(dup2)(from, to);
}

P3S_EXPORT int dup3(int from, int to, int flags)
{
    p3s_file_forget(to);
    return REAL(dup3)(from, to, flags);
}

/* ---- streams ---------------------------------------------------------------------------------- */

static inline int number(FILE *f) { return f ? fileno_unlocked(f) : -1; }

#define OPENED_STREAM(name)                                                                        \
    {                                                                                              \
        struct p3s_io i;                                                                           \
        bool there = p3s_io_opening(&i, P3S_OP_POSIX_fopen, mode && *mode == 'w',           \
                                    P3S_RA, P3S_FA);                                               \
        FILE *got = REAL(name)(p, mode);                                                           \
        if (there)                                                                                 \
            p3s_io_opened(&i, number(got));                                                        \
        else                                                                                       \
            p3s_file_forget(number(got));                                                          \
        return got;                                                                                \
    }

P3S_EXPORT FILE *fopen(const char *p, const char *mode) OPENED_STREAM(fopen)
P3S_EXPORT FILE *fopen64(const char *p, const char *mode) OPENED_STREAM(fopen64)

P3S_EXPORT int fclose(FILE *f)
{
    struct p3s_io i;
    int fd = number(f);
    if (!p3s_io_enter(&i, P3S_OP_POSIX_fclose, fd, P3S_RA, P3S_FA)) {
        p3s_file_forget(fd);
        return REAL(fclose)(f);
    }
    p3s_file_forget(fd);
    int got = REAL(fclose)(f);
    p3s_io_leave(&i, 0);
    return got;
}

P3S_EXPORT size_t fread(void *b, size_t size, size_t n, FILE *f)
    MOVED(size_t, fread, fread, number(f), got * size, b, size, n, f)
P3S_EXPORT size_t fwrite(const void *b, size_t size, size_t n, FILE *f)
    MOVED(size_t, fwrite, fwrite, number(f), got * size, b, size, n, f)
P3S_EXPORT size_t fread_unlocked(void *b, size_t size, size_t n, FILE *f)
    MOVED(size_t, fread, fread_unlocked, number(f), got * size, b, size, n, f)
P3S_EXPORT size_t fwrite_unlocked(const void *b, size_t size, size_t n, FILE *f)
    MOVED(size_t, fwrite, fwrite_unlocked, number(f), got * size, b, size, n, f)
P3S_EXPORT size_t __fread_chk(void *b, size_t room, size_t size, size_t n, FILE *f)
    MOVED(size_t, fread, __fread_chk, number(f), got * size, b, room, size, n, f)
P3S_EXPORT int fflush(FILE *f) MOVED(int, fflush, fflush, number(f), 0, f)
P3S_EXPORT int fputs(const char *s, FILE *f)
    MOVED(int, fprintf, fputs, number(f), strlen(s), s, f)
P3S_EXPORT int vfprintf(FILE *f, const char *s, va_list list)
    MOVED(int, fprintf, vfprintf, number(f), got, f, s, list)
P3S_EXPORT int __vfprintf_chk(FILE *f, int flag, const char *s, va_list list)
    MOVED(int, fprintf, __vfprintf_chk, number(f), got, f, flag, s, list)

#define PRINTED(moved_by)                                                                          \
    {                                                                                              \
        struct p3s_io i;                                                                           \
        va_list list;                                                                              \
        bool there = p3s_io_enter(&i, P3S_OP_POSIX_fprintf, number(f), P3S_RA, P3S_FA);               \
        va_start(list, s);                                                                         \
        int got = moved_by;                                                                        \
        va_end(list);                                                                              \
        if (there)                                                                                 \
            p3s_io_leave(&i, got);                                                                 \
        return got;                                                                                \
    }

P3S_EXPORT int fprintf(FILE *f, const char *s, ...) PRINTED(REAL(vfprintf)(f, s, list))
P3S_EXPORT int __fprintf_chk(FILE *f, int flag, const char *s, ...)
    PRINTED(REAL(__vfprintf_chk)(f, flag, s, list))

#endif
