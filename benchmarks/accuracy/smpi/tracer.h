/* Included before every file of the tracer when it is compiled for SMPI, where all ranks are
 * copies of the program in one thread of one process. */
#undef clock_gettime
#define clock_gettime(clock, t) accuracy_clock(clock, t)
#define dl_iterate_phdr accuracy_modules
#define __thread                        /* each rank has its own copy of all variables */
#define tls_model(which) unused
#include <time.h>
int accuracy_clock(clockid_t clock, struct timespec *t);
#include <dlfcn.h>
#define dlsym(library, name) accuracy_symbol(library, name)
void *accuracy_symbol(void *library, const char *name);
#define dladdr(address, info) accuracy_module(address, info)
int accuracy_module(const void *address, Dl_info *info);

#include <mpi.h>
int accuracy_Comm_get_parent(MPI_Comm *parent);
int accuracy_Get_elements_x(const MPI_Status *status, MPI_Datatype type, MPI_Count *count);
int accuracy_Topo_test(MPI_Comm comm, int *topology);

/* 0 here, the number of a rank; there are no intercommunicators, for which it is meant. */
#undef MPI_ROOT
#define MPI_ROOT (-1000001)
