// Threads of the C++ library: one share alone, then threads of one and two shares.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <ctime>
#include <thread>

static double cpu_s()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

static void compute(int shares)
{
    double begin = cpu_s();
    while (cpu_s() - begin < 0.02 * shares) {
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    compute(1);
    MPI_Barrier(MPI_COMM_WORLD);
    std::thread one(compute, 1), two(compute, 2);
    one.join();
    two.join();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
