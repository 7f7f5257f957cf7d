/* Tells smpi/fortran.c where this copy of the program has its MPI calls. */
#define CALL(x) extern char mpi_##x[] __asm__("MPI_" #x);
#include "calls.h"
#undef CALL

static void *const calls[] = {
#define CALL(x) mpi_##x,
#include "calls.h"
};

void accuracy_register(void *const *calls) __attribute__((weak));

__attribute__((constructor)) static void tell(void)
{
    if (accuracy_register)
        accuracy_register(calls);
}
