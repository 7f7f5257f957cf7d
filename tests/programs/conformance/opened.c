/* The program itself has no MPI call between MPI_Init and MPI_Finalize: a library that it opens
 * while it runs does the communication. */
#include "conform.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    (void)argc;
    begin();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*communicate)(int (*)(const char *, long, int)) = NULL;
    if (library)
        communicate = (int (*)(int (*)(const char *, long, int)))dlsym(library, "communicate");
    if (!communicate)
        MPI_Abort(MPI_COMM_WORLD, 5);
    say("sum %d", communicate(called));
    end();
    return 0;
}
