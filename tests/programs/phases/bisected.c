/* Neighbour lists on a box cut by recursive bisection: bisected [steps]
 *
 * The unit square is cut in turn along x and y, in proportion to the ranks on both sides and a
 * little beside; boxes that touch exchange. The partners of a rank look like chance.
 */
#include "phases.h"

struct box {
    double low[2], high[2];
};

static struct box part(struct box b, int first, int count, int wanted, int depth)
{
    if (count == 1)
        return b;
    int half = count / 2, d = depth % 2;
    double share = (double)half / count + (depth % 3 - 1) * 0.03;
    double cut = b.low[d] + share * (b.high[d] - b.low[d]);
    if (wanted < first + half) {
        b.high[d] = cut;
        return part(b, first, half, wanted, depth + 1);
    }
    b.low[d] = cut;
    return part(b, first + half, count - half, wanted, depth + 1);
}

static int touch(const struct box *a, const struct box *b)
{
    for (int d = 0; d < 2; d++)
        if (a->low[d] > b->high[d] || b->low[d] > a->high[d])
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 6), neighbours = 0;
    struct box all = {{0.0, 0.0}, {1.0, 1.0}}, mine = part(all, 0, size, rank, 0);
    int *list = malloc((size_t)size * sizeof *list);
    MPI_Request *r = malloc((size_t)(2 * size) * sizeof *r);
    double *in = calloc((size_t)size, sizeof *in), out = rank, sum;
    for (int q = 0; q < size; q++) {
        struct box other = part(all, 0, size, q, 0);
        if (q != rank && touch(&mine, &other))
            list[neighbours++] = q;
    }
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < neighbours; i++)
            MPI_Irecv(&in[i], 1, MPI_DOUBLE, list[i], 0, MPI_COMM_WORLD, &r[i]);
        for (int i = 0; i < neighbours; i++)
            MPI_Isend(&out, 1, MPI_DOUBLE, list[i], 0, MPI_COMM_WORLD, &r[neighbours + i]);
        MPI_Waitall(2 * neighbours, r, MPI_STATUSES_IGNORE);
        MPI_Allreduce(&out, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    free(list);
    free(r);
    free(in);
    MPI_Finalize();
    return 0;
}
