/* 26 neighbours from one Isend loop on the grid of MPI_Dims_create, the first dimension fastest;
   messages are faces, edges and corners of blocks of 24 x 36 x 48 points. */
#include <mpi.h>

static double in[26][2048], out[2048];

static int local(int points, int parts, int place) {
    return points / parts + (place < points % parts);
}

int main(int argc, char **argv) {
    static const int points[3] = {24, 36, 48};
    int n, r, p[3] = {0, 0, 0}, c[3], peer[26], words[26], m = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    MPI_Dims_create(n, 3, p);
    c[0] = r % p[0], c[1] = r / p[0] % p[1], c[2] = r / (p[0] * p[1]);
    for (int v = 0; v < 27; v++) {
        int by[3] = {v % 3 - 1, v / 3 % 3 - 1, v / 9 - 1}, q[3], size = 1, inside = v != 13;
        for (int d = 0; d < 3; d++) {
            q[d] = c[d] + by[d];
            inside &= q[d] >= 0 && q[d] < p[d];
            if (!by[d]) size *= local(points[d], p[d], c[d]);
        }
        if (inside) peer[m] = q[0] + p[0] * (q[1] + p[1] * q[2]), words[m++] = size;
    }
    for (int turn = 0; turn < 5; turn++) {
        MPI_Request request[52];
        for (int k = 0; k < m; k++)
            MPI_Irecv(in[k], words[k], MPI_DOUBLE, peer[k], 0, MPI_COMM_WORLD, request + k);
        for (int k = 0; k < m; k++)
            MPI_Isend(out, words[k], MPI_DOUBLE, peer[k], 0, MPI_COMM_WORLD, request + m + k);
        MPI_Waitall(2 * m, request, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
