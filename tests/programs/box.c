/* A 7-point halo in a box, on a process grid that it is given or makes itself.
 *
 *   box PX PY PZ [last] [periodic] [one] [smaller] [squares | cubes | powers]
 *
 * 0 0 0 makes the grid with MPI_Dims_create, without a Cartesian communicator. The rank counts
 * along x first, or with "last" along z. "one" sends all faces from one call; "smaller" takes a box
 * of half the edge. The last words say which process counts it takes; at others it ends with code 3,
 * as it does where PX PY PZ are not those of its ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24, STEPS = 6 };

static int p[3], c[3], last, periodic, edge = N;
static double out[N * N], in[6][N * N];

static int block(int extent, int parts, int at)
{
    return extent / parts + (at < extent % parts);
}

static int rank_at(const int at[3])
{
    return last ? (at[0] * p[1] + at[1]) * p[2] + at[2] : at[0] + p[0] * (at[1] + p[1] * at[2]);
}

static int neighbour(int d, int step)
{
    int at[3] = {c[0], c[1], c[2]};
    at[d] += step;
    if (periodic)
        at[d] = (at[d] + p[d]) % p[d];
    return at[d] < 0 || at[d] >= p[d] ? MPI_PROC_NULL : rank_at(at);
}

static int face(int d)
{
    int e = (d + 1) % 3, f = (d + 2) % 3;
    return block(edge, p[e], c[e]) * block(edge, p[f], c[f]);
}

static void from_one_call(void)
{
    MPI_Request wait[12];
    int posted = 0;
    for (int k = 0; k < 6; k++)
        if (neighbour(k / 2, k % 2 ? 1 : -1) >= 0)
            MPI_Irecv(in[k], face(k / 2), MPI_DOUBLE, neighbour(k / 2, k % 2 ? 1 : -1), 0,
                      MPI_COMM_WORLD, &wait[posted++]);
    for (int k = 0; k < 6; k++)
        if (neighbour(k / 2, k % 2 ? 1 : -1) >= 0)
            MPI_Isend(out, face(k / 2), MPI_DOUBLE, neighbour(k / 2, k % 2 ? 1 : -1), 0,
                      MPI_COMM_WORLD, &wait[posted++]);
    MPI_Waitall(posted, wait, MPI_STATUSES_IGNORE);
}

static void swap(int d, int step)
{
    MPI_Sendrecv(out, face(d), MPI_DOUBLE, neighbour(d, step), d, in[0], face(d), MPI_DOUBLE,
                 neighbour(d, -step), d, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void from_six_calls(void)
{
    swap(0, 1);
    swap(0, -1);
    swap(1, 1);
    swap(1, -1);
    swap(2, 1);
    swap(2, -1);
}

static int takes(const char *which, int n)
{
    int root = 1;
    if (!strcmp(which, "powers"))
        return !(n & (n - 1));
    while (root * root < n)
        root++;
    if (!strcmp(which, "squares"))
        return root * root == n;
    for (root = 1; root * root * root < n;)
        root++;
    return root * root * root == n;
}

int main(int argc, char **argv)
{
    int n, r, one = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    for (int d = 0; d < 3; d++)
        p[d] = argc > d + 1 ? atoi(argv[d + 1]) : 0;
    if (!p[0])
        MPI_Dims_create(n, 3, p);
    int good = p[0] * p[1] * p[2] == n;
    for (int k = 4; k < argc; k++) {
        last |= !strcmp(argv[k], "last");
        periodic |= !strcmp(argv[k], "periodic");
        one |= !strcmp(argv[k], "one");
        if (!strcmp(argv[k], "smaller"))
            edge = N / 2;
        if (!strcmp(argv[k], "powers") || !strcmp(argv[k], "squares") || !strcmp(argv[k], "cubes"))
            good &= takes(argv[k], n);
    }
    if (!good) {
        if (r == 0)
            fprintf(stderr, "box: %d x %d x %d is not for %d ranks\n", p[0], p[1], p[2], n);
        MPI_Finalize();
        return 3;
    }
    for (int d = 0, left = r; d < 3; d++) {
        int k = last ? 2 - d : d;
        c[k] = left % p[k];
        left /= p[k];
    }
    for (int step = 0; step < STEPS; step++)
        one ? from_one_call() : from_six_calls();
    MPI_Finalize();
    return 0;
}
