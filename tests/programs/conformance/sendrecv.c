/* MPI_Sendrecv and _replace around a ring, with open ends, wildcards and different types. */
#include "conform.h"

int main(void)
{
    int in[50], out[50], value;
    double numbers[4] = {0};
    MPI_Status status;
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    int up = me + 1 < p ? me + 1 : MPI_PROC_NULL, down = me ? me - 1 : MPI_PROC_NULL;
    for (int i = 0; i < 50; i++)
        in[i] = -1, out[i] = me * 50 + i;
    exchanged("MPI_Sendrecv", 200, 200,
              MPI_Sendrecv(out, 50, MPI_INT, right, 1, in, 50, MPI_INT, left, 1, MPI_COMM_WORLD,
                           &status));
    say_status("ring", &status, MPI_INT);
    say("%lx", checksum(in, sizeof in));
    exchanged("MPI_Sendrecv", 40, 200,
              MPI_Sendrecv(out, 10, MPI_INT, up, 2, in, 50, MPI_INT, down, MPI_ANY_TAG,
                           MPI_COMM_WORLD, &status));
    if (down == MPI_PROC_NULL)
        say("open end: %d %d", status.MPI_SOURCE == MPI_PROC_NULL, status.MPI_TAG == MPI_ANY_TAG);
    else
        say_status("chain", &status, MPI_INT);
    say("%lx", checksum(in, sizeof in));
    exchanged("MPI_Sendrecv", 16, 32,
              MPI_Sendrecv(out, 16, MPI_CHAR, right, 3, numbers, 4, MPI_DOUBLE, MPI_ANY_SOURCE, 3,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    say("%lx", checksum(numbers, 16));
    for (int turn = 0; turn < 20; turn++) {
        value = turn ? value : me;
        exchanged("MPI_Sendrecv_replace", 4, 4,
                  MPI_Sendrecv_replace(&value, 1, MPI_INT, right, turn, left, turn, MPI_COMM_WORLD,
                                       turn % 2 ? &status : MPI_STATUS_IGNORE));
    }
    say_status("replace", &status, MPI_INT);
    say("%d", value);
    exchanged("MPI_Sendrecv_replace", 0, 0,
              MPI_Sendrecv_replace(NULL, 0, MPI_INT, MPI_PROC_NULL, 4, MPI_PROC_NULL, 4,
                                   MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    exchanged("MPI_Sendrecv", 4, 4,
              MPI_Sendrecv(&value, 1, MPI_INT, 0, 5, in, 1, MPI_INT, 0, 5, MPI_COMM_SELF,
                           &status));
    say_status("self", &status, MPI_INT);
    end();
    return 0;
}
