/* Messages from host memory and from what libcudart.so (the argument, opened while the program runs)
 * calls device memory. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

static int me, p;

static void ring(void *from, void *to, int tag)
{
    MPI_Request requests[2];
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Irecv(to, 4, MPI_INT, left, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(from, 4, MPI_INT, right, tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(from, 4, MPI_INT, right, tag, to, 4, MPI_INT, left, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    static int host[4], other[4];
    void *device = NULL;
    MPI_Request persistent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    ring(host, other, 1);
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(library, "cudaMalloc");
    allocate(&device, 64);
    MPI_Barrier(MPI_COMM_WORLD);        /* a call from a new place: the library is found */
    ring(device, other, 2);
    ring(host, device, 3);
    ring(host, other, 4);
    MPI_Allreduce(device, (char *)device + 16, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, other, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(device, 4, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Send_init(device, 4, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &persistent);
    MPI_Start(&persistent);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    MPI_Request_free(&persistent);
    MPI_Finalize();
    return 0;
}
