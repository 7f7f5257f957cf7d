/* Opens the MPI library LIB itself and looks up what it calls, in its handle. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *lib = dlopen(LIB, RTLD_NOW | HOW);
    if (!lib)
        return fprintf(stderr, "%s\n", dlerror()), 2;
    int (*init)(int *, char ***) = dlsym(lib, "MPI_Init");
    int (*finalize)(void) = dlsym(lib, "PMPI_Finalize");
    int (*barrier)(MPI_Comm) = dlsym(lib, "MPI_Barrier");
#ifdef OPEN_MPI
    MPI_Comm world = dlsym(lib, "ompi_mpi_comm_world");
#else
    MPI_Comm world = MPI_COMM_WORLD;
#endif
    if (dlsym(lib, "MPI_Nothing_of_that_name") || !dlsym(RTLD_NEXT, "dlsym"))
        return 3;
    init(&argc, &argv);
    for (int i = 0; i < 7; i++)
        barrier(world);
    finalize();
    return 0;
}
