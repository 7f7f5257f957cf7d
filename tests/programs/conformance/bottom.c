/* MPI_BOTTOM with datatypes of absolute addresses, in point-to-point and collective calls. */
#include "conform.h"

int main(void)
{
    int a[4], lengths[2] = {4, 3};
    double b[3];
    MPI_Aint places[2];
    MPI_Datatype kinds[2] = {MPI_INT, MPI_DOUBLE}, both, ints;
    MPI_Request request;
    MPI_Status status;
    MPI_Comm w = MPI_COMM_WORLD;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    MPI_Get_address(a, &places[0]);
    MPI_Get_address(b, &places[1]);
    MPI_Type_create_struct(2, lengths, places, kinds, &both);
    MPI_Type_commit(&both);
    MPI_Type_create_hindexed(1, lengths, places, MPI_INT, &ints);
    MPI_Type_commit(&ints);
    for (int i = 0; i < 4; i++)
        a[i] = me * 10 + i;
    for (int i = 0; i < 3; i++)
        b[i] = me + i / 4.0;
    int got_a[4];
    char packed[4 * 4 + 3 * 8];
    DO(Irecv, 40, packed, 40, MPI_PACKED, left, 1, w, &request);
    DO(Send, 40, MPI_BOTTOM, 1, both, right, 1, w);
    DONE(Wait, 1, &request, &status);
    say_status("absolute", &status, MPI_BYTE);
    exchanged("MPI_Sendrecv", 16, 16,
              MPI_Sendrecv(MPI_BOTTOM, 1, ints, right, 2, got_a, 4, MPI_INT, left, 2, w,
                           MPI_STATUS_IGNORE));
    say("%d %d %d %d", got_a[0], got_a[1], got_a[2], got_a[3]);
    exchanged("MPI_Sendrecv_replace", 40, 40,
              MPI_Sendrecv_replace(MPI_BOTTOM, 1, both, right, 3, left, 3, w, &status));
    say("%d %g", a[2], b[2]);
    DO(Bcast, 40, MPI_BOTTOM, 1, both, p - 1, w);
    say("%d %g", a[3], b[1]);
    a[0] = me + 1;
    int sums[4];
    DO(Allreduce, 16, a, sums, 4, MPI_INT, MPI_SUM, w);
    say("%d", sums[0]);
    int *all = malloc(sizeof a * (size_t)p);
    DO(Allgather, 16, MPI_BOTTOM, 1, ints, all, 4, MPI_INT, w);
    say("%lx", checksum(all, sizeof a * (size_t)p));
    free(all);
    MPI_Type_free(&both);
    MPI_Type_free(&ints);
    end();
    return 0;
}
