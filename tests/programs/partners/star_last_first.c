/* The six neighbours of a 3-D grid from one loop, ranks from the far corner on. */
#include <mpi.h>

static double in[6][64], out[64];

int main(int argc, char **argv) {
    int n, r, p[3] = {0, 0, 0}, c[3], peer[6];
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    MPI_Dims_create(n, 3, p);
    int place = n - 1 - r;
    c[2] = place % p[2], c[1] = place / p[2] % p[1], c[0] = place / (p[1] * p[2]);
    for (int k = 0; k < 6; k++) {
        int q[3] = {c[0], c[1], c[2]}, d = k / 2;
        q[d] += k % 2 ? 1 : -1;
        peer[k] = q[d] < 0 || q[d] >= p[d] ? MPI_PROC_NULL
                                           : n - 1 - ((q[0] * p[1] + q[1]) * p[2] + q[2]);
    }
    for (int turn = 0; turn < 10; turn++) {
        MPI_Request request[12];
        for (int k = 0; k < 6; k++)
            MPI_Irecv(in[k], 64, MPI_DOUBLE, peer[k], 0, MPI_COMM_WORLD, request + k);
        for (int k = 0; k < 6; k++)
            MPI_Isend(out, 64, MPI_DOUBLE, peer[k], 0, MPI_COMM_WORLD, request + 6 + k);
        MPI_Waitall(12, request, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
