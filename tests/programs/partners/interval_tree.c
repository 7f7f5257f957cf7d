/* A broadcast down a tree of intervals [lo, hi): the first rank sends to the one in the middle. */
#include <mpi.h>

static double data[100];

int main(int argc, char **argv) {
    int n, r;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    for (int turn = 0; turn < 8; turn++) {
        int lo = 0, hi = n;
        while (hi - lo > 1) {
            int mid = (lo + hi) / 2;
            if (r == lo) MPI_Send(data, 100, MPI_DOUBLE, mid, 0, MPI_COMM_WORLD);
            if (r == mid) MPI_Recv(data, 100, MPI_DOUBLE, lo, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (r < mid)
                hi = mid;
            else
                lo = mid;
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
