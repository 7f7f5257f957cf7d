/* Prints, without a system call in between, how many instructions loops of known length take. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, size;
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(path, sizeof path, "%s/insn-%ld", getenv("P3S_TRACE_DIR"), (long)getpid());
    int fd = open(path, O_RDONLY);
    volatile uint64_t *count = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || count == MAP_FAILED || count[1] != UINT64_C(0x50335351454d5531)) {
        printf("rank %d: no counter at %s\n", rank, path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    uint64_t took[4];
    for (int i = 0; i < 4; i++) {
        uint64_t turns = 1000 * (uint64_t)(1 + i * i), before = count[0];
        __asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(turns));
        took[i] = count[0] - before;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d:%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", rank, size, took[0], took[1] - took[0],
           took[2] - took[1], took[3] - took[2]);
    MPI_Finalize();
    return 0;
}
