/* Programs that end on purpose without MPI_Finalize: where the user says so, the capture of a rank
 * that ends with code 0 is closed as by it. */
#include "p3s_inside.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Launchers end all ranks as soon as one has ended so: ranks wait for each other, but not for long,
 * as some may never come. */
#define MOST_WAIT_NS (10 * INT64_C(1000000000))

static void wait_for_all(void)
{
#ifdef P3S_HAVE_Ibarrier
    int64_t until = p3s_clock_ns(CLOCK_MONOTONIC) + MOST_WAIT_NS;
    MPI_Request request;
    int all = 0, world = 0;              /* sessions alone make none */
    if (PMPI_Initialized(&world) != MPI_SUCCESS || !world ||
        PMPI_Ibarrier(p3s_mpi.comm_world, &request) != MPI_SUCCESS)
        return;
    while (PMPI_Test(&request, &all, MPI_STATUS_IGNORE) == MPI_SUCCESS && !all &&
           p3s_clock_ns(CLOCK_MONOTONIC) < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
#endif
}

bool p3s_end(int code, int wrappers)
{
    if (code || !p3s_active || !getenv("P3S_END") || getpid() != p3s_header->pid)
        return false;
    if (p3s_io_pending)
        p3s_io_flush();
    bool outside = !p3s_nested(P3S_FA) || p3s_self.depth <= wrappers;
    p3s_go_in(P3S_RA, P3S_FA);      /* what closing calls of the C library is no event */
    p3s_hold();
    p3s_memory_end();
    p3s_store_close();
    p3s_active = 0;
    p3s_let_go();
    p3s_self.depth--;
    if (outside)
        wait_for_all();
    return true;
}

static void at_exit(int code, void *unused)
{
    (void)unused;
    p3s_end(code, 0);
}

void p3s_end_begin(void)
{
#ifdef __GLIBC__
    on_exit(at_exit, NULL);
#endif
}

#ifndef P3S_ARCHIVE
__attribute__((noreturn)) static void leave(int code)
{
    p3s_end(code, 0);
    for (;;)
        syscall(SYS_exit_group, code);
}

P3S_EXPORT void _exit(int code) { leave(code); }
P3S_EXPORT void _Exit(int code) { leave(code); }
#endif
