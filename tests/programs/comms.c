/* Communicators made in less common ways, and what is done on them: MPI_Comm_idup (usable later),
 * groups, intercommunicators from both sides, topologies as parents, processes that another world
 * has started. */
#include "expect.h"

static void wait_for(MPI_Request *r)
{
    MPI_Wait(r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
}

static void idup(void)
{
    MPI_Comm half, copies[2], plain;
    MPI_Request r[2];
    int size, color = me % 2, x = me;
    MPI_Comm_split(MPI_COMM_WORLD, color, -me, &half);
    comm_ev("MPI_Comm_split", p);
    MPI_Comm_size(half, &size);
    MPI_Comm_idup(half, &copies[0], &r[0]);
    comm_ev("MPI_Comm_idup", size);
    MPI_Comm_idup(MPI_COMM_WORLD, &copies[1], &r[1]);
    comm_ev("MPI_Comm_idup", p);
    MPI_Comm_dup(half, &plain);          /* not taken for the one that is still on its way */
    comm_ev("MPI_Comm_dup", size);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    done_ev("MPI_Waitall", 2);
    MPI_Bcast(&x, 1, MPI_INT, 0, copies[0]);
    ev("MPI_Bcast", -1, 4, 4, -1, color + 2 * (size - 1), size);
    check(x == color + 2 * (size - 1), "Comm_idup");
    MPI_Barrier(copies[1]), comm_ev("MPI_Barrier", p);
    MPI_Barrier(plain), comm_ev("MPI_Barrier", size);
    MPI_Comm_free(&copies[1]), comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&copies[0]), comm_ev("MPI_Comm_free", size);
#if MPI_VERSION >= 4
    MPI_Comm_idup_with_info(half, MPI_INFO_NULL, &copies[0], &r[0]);
    comm_ev("MPI_Comm_idup_with_info", size), wait_for(&r[0]);
    MPI_Comm_disconnect(&copies[0]), comm_ev("MPI_Comm_disconnect", size);
#endif
    MPI_Comm_free(&plain), comm_ev("MPI_Comm_free", size);
    MPI_Comm_free(&half), comm_ev("MPI_Comm_free", size);
}

static void groups(void)
{
    MPI_Group all, most;
    MPI_Comm made;
    int last = p - 1, r;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    if (p > 1)
        MPI_Group_excl(all, 1, &last, &most);
    else
        MPI_Group_incl(all, 1, &last, &most);
    int n = p > 1 ? p - 1 : 1;
    MPI_Comm_create(MPI_COMM_WORLD, most, &made);
    comm_ev("MPI_Comm_create", p);
    if (made != MPI_COMM_NULL) {
        MPI_Comm_rank(made, &r);
        MPI_Sendrecv(&me, 1, MPI_INT, n - 1 - r, 1, &r, 1, MPI_INT, n - 1 - me, 1, made,
                     MPI_STATUS_IGNORE);
        ev("MPI_Sendrecv", n - 1 - me, 4, 4, 1, -1, n);
        ev("MPI_Sendrecv_recv", n - 1 - me, 4, 4, 1, -1, n);
        MPI_Comm_free(&made), comm_ev("MPI_Comm_free", n);
        MPI_Comm_create_group(MPI_COMM_WORLD, most, 7, &made);
        comm_ev("MPI_Comm_create_group", p);
        MPI_Barrier(made), comm_ev("MPI_Barrier", n);
        MPI_Comm_free(&made), comm_ev("MPI_Comm_free", n);
    }
    MPI_Comm_split(MPI_COMM_WORLD, me == last ? MPI_UNDEFINED : 0, me, &made);
    comm_ev("MPI_Comm_split", p);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made), comm_ev("MPI_Comm_free", p - 1);
    MPI_Comm_split_type(MPI_COMM_WORLD, me ? MPI_COMM_TYPE_SHARED : MPI_UNDEFINED, 0,
                        MPI_INFO_NULL, &made);
    comm_ev("MPI_Comm_split_type", p);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made), comm_ev("MPI_Comm_free", p - 1);
#if MPI_VERSION >= 4
    if (me < n) {
        MPI_Comm_create_from_group(most, "made of a group", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL,
                                   &made);
        comm_ev("MPI_Comm_create_from_group", n);
        MPI_Barrier(made), comm_ev("MPI_Barrier", n);
        MPI_Comm_free(&made), comm_ev("MPI_Comm_free", n);
    }
#endif
    MPI_Group_free(&most);
    MPI_Group_free(&all);
}

static void intercommunicators(void)
{
    MPI_Comm side, inter, copy, merged, part;
    MPI_Request r;
    int color = me % 2, here = (p + 1 - color) / 2, there = p - here, x = me, y[64];
    int counts[64], places[64];
    if (p < 2)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, color, me, &side);
    comm_ev("MPI_Comm_split", p);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, 1 - color, 5, &inter);
    comm_ev("MPI_Intercomm_create", here);
    MPI_Comm_dup(inter, &copy), comm_ev("MPI_Comm_dup", p);
    for (int i = 0; i < 64; i++)
        counts[i] = 1, places[i] = i;
    /* world rank 1 gathers from the even ranks; its own side stands by */
    int root = color == 0 ? 0 : me == 1 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Igatherv(&x, 1, MPI_INT, y, counts, places, MPI_INT, root, copy, &r);
    ev("MPI_Igatherv", -1, color ? 0 : 4, color ? 1 : 4, -1, color && me != 1 ? -3 : 1, p);
    wait_for(&r);
    check(me != 1 || y[there - 1] == 2 * (there - 1), "gather across");
    MPI_Iallgather(&x, 1, MPI_INT, y, 1, MPI_INT, copy, &r);
    ev("MPI_Iallgather", -1, 4, 4, -1, -1, p);
    wait_for(&r);
    MPI_Reduce(&x, y, 1, MPI_INT, MPI_MAX, root, copy);
    ev("MPI_Reduce", -1, color && me != 1 ? 0 : 4, 4, -1, color && me != 1 ? -3 : 1, p);
    MPI_Comm_split(inter, me < p / 2 * 2 ? 0 : MPI_UNDEFINED, me, &part);
    comm_ev("MPI_Comm_split", p);
    if (part != MPI_COMM_NULL)
        MPI_Comm_free(&part), comm_ev("MPI_Comm_free", p / 2 * 2);
    MPI_Intercomm_merge(copy, 1 - color, &merged); /* the odd ranks come first */
    comm_ev("MPI_Intercomm_merge", p);
    x = -1;
    if (me == 1)
        x = 77;
    MPI_Bcast(&x, 1, MPI_INT, 0, merged);
    ev("MPI_Bcast", -1, 4, 4, -1, 1, p);
    check(x == 77, "merged");
    MPI_Comm_free(&merged), comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&copy), comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&inter), comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&side), comm_ev("MPI_Comm_free", here);
}

static void grids(void)
{
    MPI_Comm grid, column, copy;
    int dims[2] = {p, 1}, periods[2] = {0, 1}, keep[2] = {0, 1}, x = me;
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    comm_ev("MPI_Cart_create", p);
    MPI_Comm_dup(grid, &copy), comm_ev("MPI_Comm_dup", p);
    MPI_Cart_sub(copy, keep, &column);
    comm_ev("MPI_Cart_sub", p);
    MPI_Bcast(&x, 1, MPI_INT, 0, column);
    ev("MPI_Bcast", -1, 4, 4, -1, me, 1);
    MPI_Comm_free(&column), comm_ev("MPI_Comm_free", 1);
    MPI_Comm_free(&copy), comm_ev("MPI_Comm_free", p);
    MPI_Comm_free(&grid), comm_ev("MPI_Comm_free", p);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    expect_open();
    ev("MPI_Init", -1, 0, 1, -1, -1, p);
    idup();
    groups();
    intercommunicators();
    grids();
    expect_close();
    MPI_Finalize();
    return 0;
}
