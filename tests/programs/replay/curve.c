/* The real programs of the benchmark of curves: a fixed amount of computation, slept, and messages.
 *
 *     curve PATTERN ITERATIONS WORK_US SIZE
 *
 * PATTERN: halo, wavefront, cg, allreduce or transpose. WORK_US: computation of all ranks in an
 * iteration, in us of sleep. SIZE: extent of a square domain of 8-byte cells (halo, wavefront),
 * elements of a vector (cg), bytes of an all-reduction, bytes of a matrix (transpose).
 *
 * Rank 0 prints "time S comm S": the loop from its first to its last rank, and the time in calls,
 * mean of the ranks, in seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size, dims[2], me[2];
static double comm_s;
static char *out, *in;

static void compute(double us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(us * 1e3) % 1000000000L;
    until.tv_sec += (long)(us / 1e6) + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static int at(int row, int col)
{
    return row < 0 || col < 0 || row >= dims[0] || col >= dims[1] ? MPI_PROC_NULL : row * dims[1] + col;
}

static void trade(int peer, int bytes)
{
    MPI_Request request;
    MPI_Irecv(in, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request);
    MPI_Send(out, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Four neighbours of a grid without a border around. */
static void halo(double work, int cells)
{
    int near[4] = {at(me[0] - 1, me[1]), at(me[0] + 1, me[1]), at(me[0], me[1] - 1), at(me[0], me[1] + 1)};
    MPI_Request requests[8];
    int number = 0;
    compute(work);
    double begin = MPI_Wtime();
    for (int i = 0; i < 4; i++) {
        int bytes = 8 * cells / dims[i < 2];
        if (near[i] == MPI_PROC_NULL)
            continue;
        MPI_Irecv(in + (size_t)i * 8 * cells, bytes, MPI_BYTE, near[i], i ^ 1, MPI_COMM_WORLD, &requests[number++]);
        MPI_Isend(out, bytes, MPI_BYTE, near[i], i, MPI_COMM_WORLD, &requests[number++]);
    }
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    comm_s += MPI_Wtime() - begin;
}

/* Sweeps from the first corner to the last, ten planes one after the other. */
static void wavefront(double work, int cells)
{
    enum { PLANES = 10 };
    int west = at(me[0], me[1] - 1), north = at(me[0] - 1, me[1]);
    int east = at(me[0], me[1] + 1), south = at(me[0] + 1, me[1]);
    for (int plane = 0; plane < PLANES; plane++) {
        double begin = MPI_Wtime();
        if (west != MPI_PROC_NULL)
            MPI_Recv(in, 8 * cells / dims[0] / PLANES, MPI_BYTE, west, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (north != MPI_PROC_NULL)
            MPI_Recv(in, 8 * cells / dims[1] / PLANES, MPI_BYTE, north, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double middle = MPI_Wtime();
        compute(work / PLANES);
        double after = MPI_Wtime();
        if (east != MPI_PROC_NULL)
            MPI_Send(out, 8 * cells / dims[0] / PLANES, MPI_BYTE, east, 1, MPI_COMM_WORLD);
        if (south != MPI_PROC_NULL)
            MPI_Send(out, 8 * cells / dims[1] / PLANES, MPI_BYTE, south, 2, MPI_COMM_WORLD);
        comm_s += MPI_Wtime() - after + middle - begin;
    }
}

/* Sums along the rows of the grid by recursive doubling, an exchange with the transposed rank, and
 * two sums of one number: the exchange of NPB CG. */
static void cg(double work, int elements)
{
    int rows = dims[0], cols = dims[1], wide = cols / rows;
    int other = wide == 1 ? me[1] * cols + me[0] : 2 * ((me[1] / 2) * rows + me[0]) + me[1] % 2;
    int bytes = 8 * elements / rows;
    compute(work);
    double begin = MPI_Wtime();
    for (int step = 1; step < cols; step *= 2)
        trade(me[0] * cols + (me[1] ^ step), bytes);
    if (other != rank)
        trade(other, 8 * elements / cols);
    for (int sum = 0; sum < 2; sum++)
        for (int step = 1; step < cols; step *= 2)
            trade(me[0] * cols + (me[1] ^ step), 8);
    comm_s += MPI_Wtime() - begin;
}

static void allreduce(double work, int bytes)
{
    compute(work);
    double begin = MPI_Wtime();
    MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    comm_s += MPI_Wtime() - begin;
}

static void transpose(double work, int bytes)
{
    compute(work);
    double begin = MPI_Wtime();
    MPI_Alltoall(out, bytes / size / size, MPI_BYTE, in, bytes / size / size, MPI_BYTE, MPI_COMM_WORLD);
    comm_s += MPI_Wtime() - begin;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(double, int); } patterns[] = {
        {"halo", halo}, {"wavefront", wavefront}, {"cg", cg}, {"allreduce", allreduce}, {"transpose", transpose}};
    void (*run)(double, int) = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; argc == 5 && i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(argv[1], patterns[i].name))
            run = patterns[i].run;
    if (!run) {
        fprintf(stderr, "curve PATTERN ITERATIONS WORK_US SIZE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int iterations = atoi(argv[2]), extent = atoi(argv[4]);
    double work = atof(argv[3]) / size;
    for (dims[0] = 1; 4 * dims[0] * dims[0] <= size;)
        dims[0] *= 2;
    dims[1] = size / dims[0];
    me[0] = rank / dims[1];
    me[1] = rank % dims[1];
    out = calloc(32, (size_t)extent);
    in = calloc(32, (size_t)extent);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < iterations; i++)
        run(work, extent);
    double last_call = MPI_Wtime();  /* ranks wait for the last one, in the run as in its prediction */
    MPI_Barrier(MPI_COMM_WORLD);
    comm_s += MPI_Wtime() - last_call;
    double ends[2] = {MPI_Wtime(), -begin}, last[2], sum;
    MPI_Reduce(ends, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&comm_s, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("time %.6f comm %.6f\n", last[0] + last[1], sum / size);
    MPI_Finalize();
    return 0;
}
