/* What a call of the C library on a file takes: the quickest batch of each kind, in ns a call. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    enum { CALLS = 20000, BATCHES = 25 };
    static char data[8];
    double least[3] = {1e9, 1e9, 1e9};
    MPI_Init(&argc, &argv);
    for (int b = 0; b < BATCHES; b++) {
        FILE *f = fopen(argv[1], "w");
        int fd = open(argv[1], O_WRONLY);
        double t = MPI_Wtime(), took;
        for (int i = 0; i < CALLS; i++)
            fwrite(data, 8, 1, f);
        took = MPI_Wtime() - t;
        least[0] = took < least[0] ? took : least[0];
        t = MPI_Wtime();
        for (int i = 0; i < CALLS; i++)
            if (pwrite(fd, data, 8, 0) != 8)
                abort();
        took = MPI_Wtime() - t;
        least[1] = took < least[1] ? took : least[1];
        fclose(f);
        close(fd);
    }
    printf("calls fwrite %.1f pwrite %.1f\n", 1e9 * least[0] / CALLS, 1e9 * least[1] / CALLS);
    unlink(argv[1]);
    MPI_Finalize();
    return 0;
}
