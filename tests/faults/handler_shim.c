/* Loaded behind the tracer: raises a signal at every P3S_EVERY-th allocation, lock, mapping and write
 * of the process, before and after it, whose handler reads and writes files, as those of checkpointers
 * and crash loggers do. If the tracer allocates or locks inside the handler, the process is ended.
 * P3S_STACK: bytes of the handler's own stack, beside what the kernel needs; 0: the thread's.
 * P3S_HANDLER=mpi: the handler also calls MPI. How many there were is written to P3S_HANDLED.<pid>.txt. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uintptr_t tracer_from, tracer_to;
static long every, operations, handled;
static int calls_mpi;
static volatile int on;
static char folder[512];
static __thread volatile int in_handler __attribute__((tls_model("initial-exec")));
static __thread char stack_there __attribute__((tls_model("initial-exec")));
static size_t stack_bytes;

static void io(void)
{
    char name[640], byte = 'x';
    char *at = stpcpy(name, folder);
    unsigned long number = (unsigned long)__atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
    *at++ = '.';
    for (unsigned long n = number << 16 | (unsigned long)(getpid() & 0xffff); n; n >>= 4)
        *at++ = (char)('a' + (n & 15));
    *at = '\0';
    int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (fd < 0)
        return;
    if (write(fd, &byte, 1) != 1 || pread(fd, &byte, 1, 0) != 1)
        abort();
    close(fd);
    unlink(name);
}

static void on_signal(int number)
{
    int error = errno;
    (void)number;
    in_handler = 1;
    io();
    if (calls_mpi)
        MPI_Send(&error, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    in_handler = 0;
    errno = error;
}

static void make_stack(void)
{
    if (!stack_bytes || stack_there)
        return;
    stack_there = 1;
    size_t guard = 65536, all = guard + stack_bytes;
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p, guard, PROT_NONE);
    stack_t own = {.ss_sp = p + guard, .ss_size = stack_bytes};
    sigaltstack(&own, NULL);
}

/* of: who calls. */
static void operation(void *of)
{
    uintptr_t at = (uintptr_t)of;
    if (!on)
        return;
    if (in_handler) {
        static const char text[] = "the tracer allocates or locks in a signal handler\n";
        if (at < tracer_from || at >= tracer_to)
            return;
        if (write(2, text, sizeof text - 1) < 0) {
        }
        _exit(70);
    }
    if (__atomic_add_fetch(&operations, 1, __ATOMIC_RELAXED) % every)
        return;
    in_handler = 1;             /* making a stack is no operation */
    make_stack();
    in_handler = 0;
    raise(SIGUSR2);
}

#define CALLER __builtin_return_address(0)
#define REAL(type, name, ...)                                                                     \
    static type (*real)(__VA_ARGS__);                                                             \
    if (!real)                                                                                    \
        *(void **)&real = dlsym(RTLD_NEXT, #name);
#define AROUND(type, call)                                                                        \
    operation(CALLER);                                                                            \
    type result = call;                                                                           \
    operation(CALLER);                                                                            \
    return result;

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

void *malloc(size_t n) { AROUND(void *, __libc_malloc(n)) }
void *calloc(size_t n, size_t each) { AROUND(void *, __libc_calloc(n, each)) }
void *realloc(void *p, size_t n) { AROUND(void *, __libc_realloc(p, n)) }

void free(void *p)
{
    operation(CALLER);
    __libc_free(p);
    operation(CALLER);
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    REAL(int, pthread_mutex_lock, pthread_mutex_t *)
    AROUND(int, real(m))
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    REAL(int, pthread_mutex_unlock, pthread_mutex_t *)
    AROUND(int, real(m))
}

int posix_fallocate(int fd, off_t from, off_t n)
{
    REAL(int, posix_fallocate, int, off_t, off_t)
    AROUND(int, real(fd, from, n))
}

/* Those a handler calls itself: no operation of the tracer's. */
ssize_t write(int fd, const void *b, size_t n)
{
    REAL(ssize_t, write, int, const void *, size_t)
    if (in_handler)
        return real(fd, b, n);
    AROUND(ssize_t, real(fd, b, n))
}

int close(int fd)
{
    REAL(int, close, int)
    if (in_handler)
        return real(fd);
    AROUND(int, real(fd))
}

void *mmap(void *p, size_t n, int may, int how, int fd, off_t at)
{
    REAL(void *, mmap, void *, size_t, int, int, int, off_t)
    if (in_handler)             /* a thread's room to unwind in may be made there: a system call */
        return real(p, n, may, how, fd, at);
    AROUND(void *, real(p, n, may, how, fd, at))
}

int munmap(void *p, size_t n)
{
    REAL(int, munmap, void *, size_t)
    AROUND(int, real(p, n))
}

static int one_module(struct dl_phdr_info *info, size_t size, void *tracer)
{
    (void)size;
    if (!info->dlpi_name || strcmp(info->dlpi_name, tracer))
        return 0;
    tracer_from = UINTPTR_MAX;
    for (int h = 0; h < info->dlpi_phnum; h++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[h].p_vaddr;
        if (info->dlpi_phdr[h].p_type != PT_LOAD)
            continue;
        tracer_from = at < tracer_from ? at : tracer_from;
        tracer_to = at + info->dlpi_phdr[h].p_memsz;
    }
    return 1;
}

/* From MPI_Init's return on: the tracer's wrapper is called first and calls this one. */
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *got)
{
    int rc = PMPI_Init_thread(argc, argv, wanted, got);
    on = every > 0;
    return rc;
}

int MPI_Init(int *argc, char ***argv)
{
    int rc = PMPI_Init(argc, argv);
    on = every > 0;
    return rc;
}

int MPI_Finalize(void)
{
    calls_mpi = 0;
    int rc = PMPI_Finalize();
    on = 0;
    return rc;
}

__attribute__((constructor)) static void begin(void)
{
    const char *wish = getenv("P3S_EVERY"), *to = getenv("P3S_HANDLED"), *own = getenv("P3S_STACK");
    char *tracer = getenv("P3S_TRACER");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    if (!wish || !to || strlen(to) >= sizeof folder - 1)
        return;
    strcpy(folder, to);
    every = atol(wish);
    calls_mpi = getenv("P3S_HANDLER") != NULL;
    if (own && atol(own))
        stack_bytes = (size_t)sysconf(_SC_MINSIGSTKSZ) + (size_t)atol(own);
    if (tracer)
        dl_iterate_phdr(one_module, tracer);
    sigaction(SIGUSR2, &action, NULL);
}

__attribute__((destructor)) static void end(void)
{
    char name[640], text[64];
    on = 0;
    if (!handled)
        return;
    snprintf(name, sizeof name, "%s.%ld.txt", folder, (long)getpid());
    int length = snprintf(text, sizeof text, "%ld %ld\n", handled, operations);
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd >= 0 && write(fd, text, (size_t)length) > 0)
        close(fd);
}
