/* Two groups, even and odd ranks, and the intercommunicator between them. */
#include "conform.h"

int main(void)
{
    MPI_Comm w = MPI_COMM_WORLD, half, inter, both, copy;
    int rank, size, far, value, all[64], root;
    MPI_Status status;
    begin();
    int odd = me % 2;
    DO(Comm_split, 0, w, odd, me, &half);
    MPI_Comm_rank(half, &rank);
    DO(Intercomm_create, 0, half, 0, w, 1 - odd, 7, &inter);
    MPI_Comm_size(inter, &size);
    MPI_Comm_remote_size(inter, &far);
    say("%d here, %d there", size, far);
    if (rank < far && rank < size) {
        exchanged("MPI_Sendrecv", 4, 4,
                  MPI_Sendrecv(&me, 1, MPI_INT, rank, 1, &value, 1, MPI_INT, MPI_ANY_SOURCE, 1,
                               inter, &status));
        say_status("partner", &status, MPI_INT);
        say("%d", value);
    }
    DO(Barrier, 0, inter);
    value = me + 100;
    root = odd ? 0 : rank ? MPI_PROC_NULL : MPI_ROOT; /* from the first even rank to the odd */
    DO(Bcast, odd || !rank ? 4 : 0, &value, 1, MPI_INT, root, inter);
    say("Bcast %d", value);
    DO(Allreduce, 4, &me, &value, 1, MPI_INT, MPI_SUM, inter);
    say("Allreduce %d", value);
    DO(Allgather, 4, &me, 1, MPI_INT, all, 1, MPI_INT, inter);
    say("Allgather %lx", checksum(all, sizeof(int) * (size_t)far));
    DO(Comm_dup, 0, inter, &copy);
    DO(Barrier, 0, copy);
    DO(Comm_free, 0, &copy);
    DO(Intercomm_merge, 0, inter, odd, &both);
    MPI_Comm_rank(both, &rank);
    DO(Bcast, 4, &value, 1, MPI_INT, 0, both);
    say("merged: %d, %d", rank, value);
    DO(Comm_free, 0, &both);
    DO(Comm_free, 0, &inter);
    DO(Comm_free, 0, &half);
    end();
    return 0;
}
