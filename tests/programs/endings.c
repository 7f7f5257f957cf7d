/* A program that ends in the way its first argument names: how, must be the same under the tracer. */
#include <fcntl.h>
#include <glob.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *how;

static int is(const char *name) { return !strcmp(how, name); }

/* Enough distinct calls to need several chunks of the capture. */
static void call_much(void)
{
    static char buffer[1];
    for (int i = 0; i < 20000; i++)
        MPI_Send(buffer, 1, MPI_CHAR, MPI_PROC_NULL, i % 1000, MPI_COMM_WORLD);
}

static void write_much(int length)
{
    char page[4096] = "";
    int fd = open("large.dat", O_CREAT | O_WRONLY | O_TRUNC, 0644);
    for (int i = 0; i < length; i++)
        if (write(fd, page, sizeof page) < 0)
            exit(23);
    close(fd);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
}

/* Cuts what the tracer writes, if there is a tracer. */
static void cut_captures(int remove)
{
    char pattern[4096];
    glob_t found;
    const char *folder = getenv("P3S_TRACE_DIR");
    snprintf(pattern, sizeof pattern, "%s/*.p3t", folder ? folder : ".");
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (remove ? unlink(found.gl_pathv[i]) : truncate(found.gl_pathv[i], 0))
            _exit(99);
}

/* A store behind the end of a file of the program's own. */
static void store_behind_end(void)
{
    int fd = open("short.dat", O_CREAT | O_RDWR | O_TRUNC, 0644);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    page[0] = 1;
}

static void *exits(void *code) { exit(*(int *)code); }

static void writes_and(int number)
{
    int fd = open("handler.log", O_CREAT | O_WRONLY | O_APPEND, 0644);
    if (write(fd, "x", 1) != 1)
        _exit(98);
    close(fd);
    if (is("handler-exit"))
        _exit(31);
    if (is("handler-abort"))
        abort();
    if (is("handler-kill"))
        kill(getpid(), SIGKILL);
    if (is("handler-mpi-abort"))
        MPI_Abort(MPI_COMM_WORLD, 32);
    signal(number, SIG_DFL);
    raise(number);
}

static void wait_for_timer(void)
{
    struct sigaction action = {.sa_handler = writes_and};
    struct itimerval soon = {{0, 0}, {0, 2000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (;;)
        free(malloc(1000));
}

static void bus_exit(int number) { _exit(number + 20); }

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "";
    if (is("bus-own-before"))
        signal(SIGBUS, bus_exit);
    MPI_Init(&argc, &argv);
    call_much();
    if (is("exit"))
        exit(5);
    if (is("_exit"))
        _exit(6);
    if (is("quick_exit"))
        quick_exit(7);
    if (is("abort"))
        abort();
    if (is("mpi-abort"))
        MPI_Abort(MPI_COMM_WORLD, 8);
    if (is("segv"))
        *(volatile int *)0 = 1;
    if (is("ill"))
        __builtin_trap();
    if (is("kill"))
        kill(getpid(), SIGKILL);
    if (is("term"))
        raise(SIGTERM);
    if (is("bus-raise"))
        raise(SIGBUS);
    if (is("bus") || is("bus-own-before"))
        store_behind_end();
    if (is("bus-own")) {
        signal(SIGBUS, bus_exit);
        store_behind_end();
    }
    if (is("pipe")) {
        int ends[2];
        if (pipe(ends) || close(ends[0]) || write(ends[1], "x", 1))
            _exit(97);
    }
    if (is("thread")) {
        pthread_t thread;
        int code = 9;
        pthread_create(&thread, NULL, exits, &code);
        pthread_join(thread, NULL);
    }
    if (is("exec"))
        execl("/bin/sh", "sh", "-c", "exit 10", (char *)NULL);
    if (is("child")) {
        int status = 0;
        if (!fork())
            abort();
        wait(&status);
        exit(WTERMSIG(status));
    }
    if (!strncmp(how, "handler", 7))
        wait_for_timer();
    if (is("file-size")) {
        limit_files(40000);
        write_much(20);
    }
    if (is("file-size-ignored")) {
        signal(SIGXFSZ, SIG_IGN);
        limit_files(40000);
        write_much(20);
    }
    if (is("file-size-of-capture")) {   /* nothing of the program's own is too large */
        limit_files(70000);
        call_much();
        write_much(5);
    }
    if (is("file-size-blocked")) {      /* the signal waits until it is let through */
        sigset_t one;
        char page[4096] = "";
        sigemptyset(&one);
        sigaddset(&one, SIGXFSZ);
        sigprocmask(SIG_BLOCK, &one, NULL);
        int fd = open("large.dat", O_CREAT | O_WRONLY | O_TRUNC, 0644);
        for (int i = 0; i < 2 && write(fd, page, sizeof page) > 0; i++)
            limit_files(sizeof page);
        for (int i = 0; i < 4; i++)
            call_much();
        sigprocmask(SIG_UNBLOCK, &one, NULL);
    }
    if (!strncmp(how, "capture", 7)) {
        cut_captures(is("capture-removed"));
        for (int i = 0; i < 4; i++)
            call_much();
    }
    if (is("capture-cut-killed"))
        abort();
    MPI_Finalize();
    if (is("capture-cut-bus"))
        store_behind_end();
    return is("return") || is("capture-cut") || is("capture-removed") ? 12 : 0;
}
