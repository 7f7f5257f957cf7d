/* Communicators made in every way, used, compared and freed. */
#include "conform.h"

static void use(const char *what, MPI_Comm comm)
{
    int rank, size, value[2], result;
    if (comm == MPI_COMM_NULL) {
        say("%s: not in it", what);
        return;
    }
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Comm_compare(MPI_COMM_WORLD, comm, &result);
    value[0] = me;
    value[1] = -1;
    exchanged("MPI_Sendrecv", 4, 4,
              MPI_Sendrecv(&value[0], 1, MPI_INT, (rank + 1) % size, 1, &value[1], 1, MPI_INT,
                           MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE));
    DO(Allreduce, 4, MPI_IN_PLACE, &value[0], 1, MPI_INT, MPI_SUM, comm);
    say("%s: %d of %d, %d, %d, congruent %d", what, rank, size, value[0], value[1],
        result == MPI_CONGRUENT);
    DO(Comm_free, 0, &comm);
}

int main(void)
{
    MPI_Comm w = MPI_COMM_WORLD, comm, half;
    MPI_Group all, some;
    MPI_Info info;
    MPI_Request request;
    begin();
    DO(Comm_dup, 0, w, &comm);
    use("dup", comm);
    MPI_Info_create(&info);
    DO(Comm_dup_with_info, 0, w, info, &comm);
    MPI_Info_free(&info);
    use("dup with info", comm);
    DO(Comm_split, 0, w, me % 2, -me, &comm);
    use("split backwards", comm);
    DO(Comm_split, 0, w, me ? 1 : MPI_UNDEFINED, 0, &comm);
    use("split without rank 0", comm);
    DO(Comm_split_type, 0, w, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    use("split by node", comm);
    MPI_Comm_group(w, &all);
    int first = (p + 1) / 2, range[1][3] = {{first - 1, 0, -1}};
    MPI_Group_range_incl(all, 1, range, &some);
    DO(Comm_create, 0, w, some, &half);
    use("create", half);
    if (me < first) {
        DO(Comm_create_group, 0, w, some, 5, &half);
        DO(Comm_dup, 0, half, &comm);
        DO(Comm_free, 0, &half); /* freed before what was made of it */
        use("create group, dup", comm);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    DO(Comm_idup, 0, w, &comm, &request);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    use("idup", comm);
    DO(Comm_dup, 0, MPI_COMM_SELF, &comm);
    DO(Comm_disconnect, 0, &comm);
    for (int i = 0; i < 30; i++) { /* handles are used again */
        DO(Comm_split, 0, w, me % (i % 3 + 1), me, &comm);
        use("again", comm);
    }
    end();
    return 0;
}
