/* Everything through one line: a list of calls is carried out by one interpreter: wrapper [steps]
 *
 * All stacks are equal, so each operation has one site. A step is a shift to the right, a small
 * reduction, a shift to the left, a large reduction and a barrier.
 */
#include "phases.h"

enum { LARGE = 64 };

static double from[LARGE], to[LARGE];

static void do_bcast(int n) { MPI_Bcast(from, n, MPI_DOUBLE, 0, MPI_COMM_WORLD); }
static void do_reduce(int n) { MPI_Allreduce(from, to, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void do_barrier(int n)
{
    (void)n;
    MPI_Barrier(MPI_COMM_WORLD);
}
static void do_shift(int n)
{
    MPI_Sendrecv(from, 4, MPI_DOUBLE, (rank + n + size) % size, 0, to, 4, MPI_DOUBLE,
                 (rank - n + size) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

struct call {
    void (*volatile what)(int);
    int number;
};

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 10), count = 0;
    struct call *list = malloc((size_t)(5 * steps + 2) * sizeof *list);
    list[count++] = (struct call){do_bcast, 1};
    for (int s = 0; s < steps; s++) {
        list[count++] = (struct call){do_shift, 1};
        list[count++] = (struct call){do_reduce, 1};
        list[count++] = (struct call){do_shift, -1};
        list[count++] = (struct call){do_reduce, LARGE};
        list[count++] = (struct call){do_barrier, 0};
    }
    list[count++] = (struct call){do_bcast, LARGE};
    for (int i = 0; i < count; i++)
        list[i].what(list[i].number);
    free(list);
    MPI_Finalize();
    return 0;
}
