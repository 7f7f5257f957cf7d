/* Sessions instead of MPI_Init: the world, a part of it, a second session inside of the first. With
 * an argument MPI_Init is called, too, and has the last word. */
#include "conform.h"

static MPI_Comm from_set(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group;
    MPI_Comm made;
    MPI_Group_from_session_pset(session, set, &group);
    DO(Comm_create_from_group, 0, group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made);
    MPI_Group_free(&group);
    return made;
}

static void ring(MPI_Comm comm, int n)
{
    int rank, size, got = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < n; i++)
        exchanged("MPI_Sendrecv", 4, 4,
                  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT,
                               (rank + size - 1) % size, 1, comm, MPI_STATUS_IGNORE));
    say("ring %d", got);
}

int main(int argc, char **argv)
{
    MPI_Session first, second;
    MPI_Comm world, again, half;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &first);
    count("MPI_Init", 0);
    if (argc > 1)
        MPI_Init(&argc, &argv);
    world = from_set(first, "mpi://WORLD", "conformance.first");
    MPI_Comm_rank(world, &me);
    MPI_Comm_size(world, &p);
    ring(world, 3);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &second);
    again = from_set(second, "mpi://WORLD", "conformance.second");
    ring(again, 2);
    DO(Comm_split, 0, world, me % 2, 0, &half);
    ring(half, 1);
    DO(Comm_free, 0, &half);
    DO(Comm_free, 0, &world);
    MPI_Session_finalize(&first);
    ring(again, 2);
    DO(Barrier, 0, again);
    DO(Comm_free, 0, &again);
    if (argc > 1) {
        MPI_Session_finalize(&second);
        DO(Barrier, 0, MPI_COMM_WORLD); /* after the last session */
    }
    write_down();
    if (argc > 1)
        MPI_Finalize();
    else
        MPI_Session_finalize(&second);
    return 0;
}
