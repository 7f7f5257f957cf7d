/* Not an MPI program at all: it opens a library that is one, from MPI_Init to MPI_Finalize. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(void) = NULL;
    if (library)
        run = (int (*)(void))dlsym(library, "run");
    if (!run) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
    return run();
}
