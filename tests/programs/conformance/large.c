/* Large counts: the MPI_X_c names where this MPI has them (MPI 4), with MPI_Count arguments, and
 * datatypes of more bytes than an int holds. */
#include "conform.h"

int main(void)
{
    MPI_Datatype huge, block;
    MPI_Count size;
    MPI_Request request;
    MPI_Status status;
    MPI_Comm w = MPI_COMM_WORLD;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Type_contiguous(1 << 20, MPI_INT, &block);
    MPI_Type_contiguous(1 << 12, block, &huge); /* 16 GiB */
    MPI_Type_commit(&huge);
    MPI_Type_size_x(huge, &size);
    say("size %lld", (long long)size);
    DO(Send, 1L << 34, &size, 1, huge, MPI_PROC_NULL, 1, w);
    DO(Recv, 1L << 35, &size, 2, huge, MPI_PROC_NULL, 1, w, &status);
    exchanged("MPI_Sendrecv", 0, 1L << 34,
              MPI_Sendrecv(&size, 0, huge, right, 2, &size, 1, huge, left, 2, w, &status));
    MPI_Get_elements_x(&status, huge, &size);
    say("elements %lld", (long long)size);
#if MPI_VERSION >= 4
    MPI_Count n = 3, counts_[64], many = (MPI_Count)1 << 33;
    MPI_Aint places[64];
    int a[3] = {me, 2, 3}, b[3 * 64] = {0};
    called("MPI_Send", 4 * many, MPI_Send_c(a, many, MPI_INT, MPI_PROC_NULL, 3, w));
    called("MPI_Irecv", 4 * n, MPI_Irecv_c(b, n, MPI_INT, left, 4, w, &request));
    called("MPI_Send", 4 * n, MPI_Send_c(a, n, MPI_INT, right, 4, w));
    DONE(Wait, 1, &request, &status);
    MPI_Count got;
    MPI_Get_count_c(&status, MPI_INT, &got);
    say("received %lld: %d", (long long)got, b[0]);
    exchanged("MPI_Sendrecv", 4 * n, 4 * n,
              MPI_Sendrecv_c(a, n, MPI_INT, right, 5, b, n, MPI_INT, left, 5, w, &status));
    called("MPI_Bcast", 4 * n, MPI_Bcast_c(a, n, MPI_INT, p - 1, w));
    called("MPI_Allreduce", 4 * n, MPI_Allreduce_c(a, b, n, MPI_INT, MPI_SUM, w));
    say("sum %d", b[0]);
    for (int i = 0; i < p; i++)
        counts_[i] = 3, places[i] = 3 * i;
    called("MPI_Allgatherv", 4 * n,
           MPI_Allgatherv_c(a, n, MPI_INT, b, counts_, places, MPI_INT, w));
    say("%lx", checksum(b, sizeof(int) * 3 * (size_t)p));
    called("MPI_Iallreduce", 4 * n,
           MPI_Iallreduce_c(MPI_IN_PLACE, a, n, MPI_INT, MPI_MAX, w, &request));
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    say("max %d", a[0]);
#else
    (void)request, (void)left;
#endif
    MPI_Type_free(&huge);
    MPI_Type_free(&block);
    end();
    return 0;
}
