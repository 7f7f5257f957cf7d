/* Ends one rank where the program ends itself: LD_PRELOADed into SimGrid's simulator.
 *
 * All ranks are one process, which Fortran's STOP, say, would end with the first rank that comes
 * to it. In C the simulator's header has names of its own for exit.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

void exit(int code)
{
    long (*actor)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "sg_actor_self_get_pid");
    void (*end_rank)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "smpi_exit");
    if (actor && end_rank && actor() > 0)
        end_rank(code);
    void (*end_process)(int) = (void (*)(int))dlsym(RTLD_NEXT, "exit");
    end_process(code);
    abort();
}
