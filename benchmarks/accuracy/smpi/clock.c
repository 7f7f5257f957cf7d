/* The CPU clock of the simulated cores: LD_PRELOADed into SimGrid's simulator.
 *
 * SMPI measures a program's computation with the CPU clock of the machine that simulates, which
 * other work disturbs. Here that clock tells what the rank's own statements cost instead: each
 * basic block and each access to memory adds to it (counted.c), the simulator itself adds nothing.
 * So a simulated run is the same every time, and computation follows the program's data. Each rank
 * has a clock of its own, since some calls of SMPI (MPI_Cart_create) let other ranks compute while
 * the clock of the caller runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_ACTORS 65536

static uint64_t picoseconds[MOST_ACTORS];

/* What the running rank has cost so far. */
uint64_t *accuracy_cost(void)
{
    static long (*actor)(void);
    if (!actor)
        *(void **)&actor = dlsym(RTLD_DEFAULT, "sg_actor_self_get_pid");
    return &picoseconds[actor ? (uint64_t)actor() % MOST_ACTORS : 0];
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_THREAD_CPUTIME_ID)
        return (int)syscall(SYS_clock_gettime, clock, t);
    uint64_t now = *accuracy_cost();
    t->tv_sec = (time_t)(now / 1000000000000u);
    t->tv_nsec = (long)(now / 1000u % 1000000000u);
    return 0;
}
