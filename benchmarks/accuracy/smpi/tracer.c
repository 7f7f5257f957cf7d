/* What the tracer asks of the system, answered for a rank of SMPI. */
#include "tracer.h"
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdint.h>
#undef clock_gettime
#undef dl_iterate_phdr
#undef dlsym
#undef dladdr

double simgrid_get_clock(void);
int smpi_clock_gettime(clockid_t clock, struct timespec *t);
int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data);

/* Simulated time, of the program's computation so far too; before MPI_Init has ended there is no
 * rank yet whose computation could pass. */
int accuracy_clock(clockid_t clock, struct timespec *t)
{
    int ready = 0;
    PMPI_Initialized(&ready);
    if (ready)
        return smpi_clock_gettime(clock, t);
    double now = simgrid_get_clock();
    t->tv_sec = (time_t)now;
    t->tv_nsec = (long)((now - (double)t->tv_sec) * 1e9);
    return 0;
}

/* SMPI loads a copy of the program per rank, each under a file name of its own. Call sites must
 * have the same name in all of them: the rank's own copy is shown as PROGRAM, the others not. */
struct visit { int (*callback)(struct dl_phdr_info *, size_t, void *); void *data; };

static int one(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct visit *v = argument;
    Dl_info own;
    struct dl_phdr_info shown = *info;
    if (dladdr((void *)one, &own) && (uintptr_t)own.dli_fbase == (uintptr_t)info->dlpi_addr)
        shown.dlpi_name = PROGRAM;
    else if (dladdr((void *)simgrid_get_clock, &own) &&
             (uintptr_t)own.dli_fbase == (uintptr_t)info->dlpi_addr)
        shown.dlpi_name = "libmpi_simgrid";     /* what comes from it is its Fortran layer */
    return v->callback(&shown, size, v->data);
}

int accuracy_modules(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
{
    struct visit v = {callback, data};
    return dl_iterate_phdr(one, &v);
}

/* The simulator's library has its Fortran layer inside, whose calls are the program's: none of its
 * calls is one of the library's own. */
int accuracy_module(const void *address, Dl_info *info)
{
    Dl_info simulator;
    int found = dladdr(address, info);
    if (found && dladdr((void *)simgrid_get_clock, &simulator) &&
        info->dli_fbase == simulator.dli_fbase)
        info->dli_fbase = (void *)1;
    return found;
}

/* What comes after the tracer is the simulator's library: not fortran.c, which leads back to it. */
void *accuracy_symbol(void *library, const char *name)
{
    static void *simulator;
    if (library == RTLD_NEXT && !simulator) {
        Dl_info info;
        if (dladdr((void *)simgrid_get_clock, &info))
            simulator = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    return dlsym(library == RTLD_NEXT && simulator ? simulator : library, name);
}

/* Declared by the simulator, not implemented. */
int accuracy_Comm_get_parent(MPI_Comm *parent)
{
    *parent = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

int accuracy_Get_elements_x(const MPI_Status *status, MPI_Datatype type, MPI_Count *count)
{
    int n = 0, rc = PMPI_Get_count(status, type, &n);
    *count = n;
    return rc;
}

int accuracy_Topo_test(MPI_Comm comm, int *topology)
{
    int dimensions;
    *topology = PMPI_Cartdim_get(comm, &dimensions) == MPI_SUCCESS ? MPI_CART : MPI_UNDEFINED;
    return MPI_SUCCESS;
}
