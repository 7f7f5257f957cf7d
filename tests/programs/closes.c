/* Closes a descriptor it does not own, the tracer's, and is given the number for a file of its own.
 * Makes 20002 events. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char link[64], path[4096];
    int own = -1;
    MPI_Init(NULL, NULL);
    for (int fd = 3; fd < 1024 && own < 0; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t got = readlink(link, path, sizeof path - 1);
        path[got > 0 ? got : 0] = 0;
        if (!strstr(path, ".p3t"))
            continue;
        close(fd);
        own = open(argv[argc - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (own != fd || write(own, "mine", 4) != 4)
            return 2;
    }
    for (int i = 0; i < 20000; i++)
        MPI_Barrier(MPI_COMM_SELF);
    MPI_Finalize();
    return 0;
}
