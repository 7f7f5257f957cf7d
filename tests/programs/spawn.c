/* Processes of another world: started with MPI_Comm_spawn, talked to over an intercommunicator.
 * They are not recorded; for those that are, they have no world rank (-1). */
#include "expect.h"

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    int x, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Bcast(&x, 1, MPI_INT, 0, parent);
        MPI_Send(&x, 1, MPI_INT, 0, 4, parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    expect_open();
    ev("MPI_Init", -1, 0, 1, -1, -1, p);
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                   MPI_ERRCODES_IGNORE);
    ev("MPI_Comm_spawn", -1, 0, 1, -1, -1, p);
    x = 5;
    MPI_Bcast(&x, 1, MPI_INT, me ? MPI_PROC_NULL : MPI_ROOT, children);
    ev("MPI_Bcast", -1, me ? 0 : 4, 4, -1, me ? -3 : 0, p + 2);
    if (me == 0)
        for (int i = 0; i < 2; i++) {
            x = -1;
            MPI_Recv(&x, 1, MPI_INT, 1 - i, 4, children, MPI_STATUS_IGNORE);
            ev("MPI_Recv", -1, 4, 4, 4, -1, p + 2);
            check(x == 5, "from a child");
        }
    MPI_Comm_disconnect(&children);
    ev("MPI_Comm_disconnect", -1, 0, 1, -1, -1, p + 2);
    MPI_Barrier(MPI_COMM_WORLD), comm_ev("MPI_Barrier", p);
    expect_close();
    MPI_Finalize();
    return 0;
}
