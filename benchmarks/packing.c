/* CPU time that a send or a receive of pieces takes over that of contiguous bytes.
 *
 *   mpicc -O2 benchmarks/packing.c -o packing && mpiexec -n 1 ./packing
 *
 * One rank sends 16 KiB to itself, from or into pieces of 8 to 4096 bytes, a piece apart (near) or
 * each on a page of its own (far), each time at other places of 24 MiB. Prints for each, in ns per
 * byte, medians of 400: what sending pieces, and what receiving them, takes beyond the same with
 * contiguous bytes, at changing places, too. The same of MPI_Pack and MPI_Unpack: p3s machine show.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 16 << 10, ROOM = 24 << 20, TIMES = 400 };

static char *buffer;

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of ns per byte; `from`, `to`: datatypes, one of them MPI_BYTE, which stays in its place. */
static double message(MPI_Datatype from, MPI_Datatype to, size_t extent)
{
    static double took[TIMES];
    size_t at = 0;
    for (int i = 0; i < TIMES; i++) {
        MPI_Request request;
        int whole_from = from == MPI_BYTE, whole_to = to == MPI_BYTE;
        at = at + 2 * extent > ROOM ? 0 : at + extent;
        MPI_Irecv(whole_to ? buffer + ROOM : buffer + at, whole_to ? BYTES : 1, to, 0, 1,
                  MPI_COMM_SELF, &request);
        double begin = cpu();
        MPI_Send(whole_from ? buffer + ROOM + 2 * BYTES : buffer + at, whole_from ? BYTES : 1, from,
                 0, 1, MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        took[i] = (cpu() - begin) / BYTES;
    }
    qsort(took, TIMES, sizeof *took, ascending);
    return took[TIMES / 2];
}

int main(int argc, char **argv)
{
    MPI_Datatype whole, pieces;
    MPI_Init(&argc, &argv);
    buffer = malloc(ROOM + 4 * BYTES);
    if (!buffer)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(buffer, 1, ROOM + 4 * BYTES);
    MPI_Type_contiguous(BYTES, MPI_BYTE, &whole);
    MPI_Type_commit(&whole);
    for (int far = 0; far < 2; far++)
        for (int block = 8; block <= 4096; block *= 8) {
            int stride = block + (far ? 4096 + 64 : block);
            size_t extent = (size_t)(BYTES / block) * (size_t)stride;
            MPI_Type_create_hvector(BYTES / block, block / 8, stride, MPI_DOUBLE, &pieces);
            MPI_Type_commit(&pieces);
            double sent = message(pieces, MPI_BYTE, extent) - message(whole, MPI_BYTE, 2 * BYTES);
            double got = message(MPI_BYTE, pieces, extent) - message(MPI_BYTE, whole, 2 * BYTES);
            printf("%s %4d: send %+.3f, receive %+.3f ns/B\n", far ? "far " : "near", block, sent,
                   got);
            MPI_Type_free(&pieces);
        }
    MPI_Type_free(&whole);
    MPI_Finalize();
    return 0;
}
