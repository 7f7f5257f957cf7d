/* Every nonblocking collective, several at a time, completed in different ways. */
#include "conform.h"

#define W MPI_COMM_WORLD
#define START(op, bytes, ...) called("MPI_" #op, bytes, MPI_##op(__VA_ARGS__, &requests[n++]))

int main(void)
{
    MPI_Request requests[20];
    int n = 0, flag, index;
    begin();
    size_t q = (size_t)p;
    int *a = malloc(sizeof(int) * (q + 4)), *r = calloc(20 * (q + 4), sizeof(int));
    int *ones = malloc(sizeof(int) * q), *at = malloc(sizeof(int) * q);
    int *bytes_at = malloc(sizeof(int) * q);
    MPI_Datatype *types = malloc(sizeof(MPI_Datatype) * q);
    for (int i = 0; i < p + 4; i++)
        a[i] = me * 100 + i;
    for (int i = 0; i < p; i++)
        ones[i] = 1, at[i] = i, bytes_at[i] = 4 * i, types[i] = MPI_INT;
    int step = p + 4, bcast[3] = {me, me, me}, root = p - 1;
    START(Ibarrier, 0, W);
    START(Ibcast, 12, bcast, 3, MPI_INT, root, W);
    START(Ireduce, 8, a, r, 2, MPI_INT, MPI_SUM, root, W);
    START(Iallreduce, 8, a, r + step, 2, MPI_INT, MPI_SUM, W);
    START(Igather, 4, a, 1, MPI_INT, r + 2 * step, 1, MPI_INT, root, W);
    START(Igatherv, 4, a, 1, MPI_INT, r + 3 * step, ones, at, MPI_INT, root, W);
    START(Iscatter, 4, a, 1, MPI_INT, r + 4 * step, 1, MPI_INT, root, W);
    START(Iscatterv, 4, a, ones, at, MPI_INT, r + 5 * step, 1, MPI_INT, root, W);
    START(Iallgather, 4, a, 1, MPI_INT, r + 6 * step, 1, MPI_INT, W);
    START(Iallgatherv, 4, a, 1, MPI_INT, r + 7 * step, ones, at, MPI_INT, W);
    DONE(Waitall, 10, n, requests, MPI_STATUSES_IGNORE);
    n = 0;
    START(Ialltoall, 4 * p, a, 1, MPI_INT, r + 8 * step, 1, MPI_INT, W);
    START(Ialltoallv, 4 * p, a, ones, at, MPI_INT, r + 9 * step, ones, at, MPI_INT, W);
    START(Ialltoallw, 4 * p, a, ones, bytes_at, types, r + 10 * step, ones, bytes_at, types, W);
    START(Ireduce_scatter, 4 * p, a, r + 11 * step, ones, MPI_INT, MPI_SUM, W);
    START(Ireduce_scatter_block, 4 * p, a, r + 12 * step, 1, MPI_INT, MPI_SUM, W);
    START(Iscan, 8, a, r + 13 * step, 2, MPI_INT, MPI_SUM, W);
    START(Iexscan, 8, a, r + 14 * step, 2, MPI_INT, MPI_SUM, W);
    POLL(Test, 1, flag, &requests[0], &flag, MPI_STATUS_IGNORE);
    for (int i = 1; i < n; i++)
        DONE(Waitany, 1, n, requests, &index, MPI_STATUS_IGNORE);
    if (!me)
        memset(r + 14 * step, 0, sizeof(int) * 2); /* not defined on rank 0 */
    say("bcast %d %d", bcast[0], bcast[2]);
    for (int i = 0; i < 15; i++)
        say("%d %lx", i, checksum(r + i * step, sizeof(int) * (size_t)step));
    free(a), free(r), free(ones), free(at), free(bytes_at), free(types);
    end();
    return 0;
}
