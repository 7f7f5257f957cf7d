/* What the programs share: an open or periodic 2-D grid, its neighbours, a little computation. They
 * count the messages with data that their calls stand for, on both sides. */
#include "../neighbours/tally.h"

static int me, p, dims[2], at[2], west, east, south, north;
static volatile double sink;

static void grid(int periodic)
{
    int periods[2] = {periodic, periodic};
    MPI_Comm cart;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    MPI_Dims_create(p, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    MPI_Cart_coords(cart, me, 2, at);
    MPI_Cart_shift(cart, 0, 1, &west, &east);
    MPI_Cart_shift(cart, 1, 1, &south, &north);
    MPI_Comm_free(&cart);
}

static inline int block(int whole, int parts, int k)
{
    return (int)((long)(k + 1) * whole / parts - (long)k * whole / parts);
}

static void compute(long cells)
{
    double x = me;
    for (long i = 0; i < 40 * cells; i++)
        x = x * 0.999 + 1e-3;
    sink = x;
}
