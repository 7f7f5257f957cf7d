/* Collectives with another count on each rank, and prefix reductions. */
#include "conform.h"

#define W MPI_COMM_WORLD

int main(void)
{
    begin();
    size_t n = (size_t)p;
    int *mine = malloc(sizeof(int) * (n * n + 2)), *all = malloc(sizeof(int) * (n * n + 2));
    int *sent = malloc(sizeof(int) * n), *got = malloc(sizeof(int) * n);
    int *at = malloc(sizeof(int) * n), *bytes_at = malloc(sizeof(int) * n);
    MPI_Datatype *types = malloc(sizeof(MPI_Datatype) * n);
    int to = 0, from = 0, root = p / 2;
    for (int i = 0; i < p * p + 2; i++)
        mine[i] = me * 10000 + i, all[i] = -1;
    for (int i = 0; i < p; i++) {
        sent[i] = (me * 3 + i) % p; /* some are zero */
        got[i] = (i * 3 + me) % p;
        to += sent[i];
        from += got[i];
        at[i] = i * p;
        bytes_at[i] = 4 * i * p;
        types[i] = MPI_INT;
    }
    DO(Alltoallv, 4 * to, mine, sent, at, MPI_INT, all, got, at, MPI_INT, W);
    say("Alltoallv %d %lx", from, checksum(all, sizeof(int) * n * n));
    DO(Alltoallw, 4 * to, mine, sent, bytes_at, types, all, got, bytes_at, types, W);
    say("Alltoallw %lx", checksum(all, sizeof(int) * n * n));
    DO(Alltoall, 4 * p, mine, 1, MPI_INT, all, 1, MPI_INT, W);
    say("Alltoall %lx", checksum(all, sizeof(int) * n));
    for (int i = 0; i < p; i++)
        got[i] = i; /* rank 0 has nothing */
    DO(Gatherv, 4 * me, mine, me, MPI_INT, all, got, at, MPI_INT, root, W);
    say("Gatherv %lx", me == root ? checksum(all, sizeof(int) * n * n) : 0);
    DO(Scatterv, 4 * me, mine, got, at, MPI_INT, all, me, MPI_INT, root, W);
    say("Scatterv %lx", checksum(all, sizeof(int) * (size_t)me));
    DO(Allgatherv, 4 * me, mine, me, MPI_INT, all, got, at, MPI_INT, W);
    say("Allgatherv %lx", checksum(all, sizeof(int) * n * n));
    DO(Gather, 8, mine, 2, MPI_INT, all, 8, MPI_BYTE, 0, W);
    say("Gather %lx", me ? 0 : checksum(all, 8 * n));
    DO(Scatter, 4, mine, 1, MPI_INT, all, 1, MPI_INT, root, W);
    say("Scatter %d", all[0]);
    DO(Reduce_scatter, 2L * p * (p - 1), mine, all, got, MPI_INT, MPI_SUM, W);
    say("Reduce_scatter %lx", checksum(all, sizeof(int) * (size_t)me));
    DO(Reduce_scatter_block, 4 * p, mine, all, 1, MPI_INT, MPI_MAX, W);
    say("Reduce_scatter_block %d", all[0]);
    DO(Scan, 8, mine, all, 2, MPI_INT, MPI_SUM, W);
    say("Scan %d %d", all[0], all[1]);
    DO(Exscan, 8, mine, all, 2, MPI_INT, MPI_SUM, W);
    say("Exscan %d", me ? all[1] : 0);
    struct { double value; int rank; } best = {me * 7 % p, me}, found;
    DO(Allreduce, 12, &best, &found, 1, MPI_DOUBLE_INT, MPI_MAXLOC, W);
    say("MAXLOC %g %d", found.value, found.rank);
    double many[1000], sums[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = me * 1000 + i;
    DO(Reduce, 8000, many, sums, 1000, MPI_DOUBLE, MPI_SUM, root, W);
    say("Reduce %g", me == root ? sums[999] : 0);
    DO(Bcast, 8000, sums, 1000, MPI_DOUBLE, root, W);
    say("Bcast %g", sums[500]);
    DO(Barrier, 0, W);
    free(mine), free(all), free(sent), free(got), free(at), free(bytes_at), free(types);
    end();
    return 0;
}
