/* What is freed inside another call, by a delete callback, or could not be freed: handles are used
 * again, and mean something else. */
#include "conform.h"

static MPI_Datatype type;
static MPI_Comm cached;
static MPI_Request request;
static int deleted, errors;

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    MPI_Type_free(&type);
    MPI_Comm_free(&cached);
    MPI_Request_free(&request);
    deleted++;
    return MPI_SUCCESS;
}

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    errors++;
}

int main(void)
{
    int key, values[8] = {0}, sent = 4, got = 0;
    MPI_Comm w = MPI_COMM_WORLD, s = MPI_COMM_SELF, outer, other, copy;
    MPI_Errhandler handler;
    MPI_Datatype longer;
    begin();
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, &key, NULL);
    for (int turn = 0; turn < 3; turn++) {
        DO(Comm_dup, 0, s, &outer);
        MPI_Comm_set_attr(outer, key, NULL);
        DO(Comm_split, 0, w, me, 0, &cached);
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Type_commit(&type);
        DO(Bcast, 8, values, 1, type, 0, cached);
        MPI_Recv_init(&got, 1, MPI_INT, 0, 7, s, &request);
        DO(Comm_free, 0, &outer);

        MPI_Type_contiguous(8, MPI_INT, &longer);
        MPI_Type_commit(&longer);
        DO(Comm_dup, 0, w, &other);
        DO(Bcast, 32, values, 1, longer, 0, other);
        DO(Irecv, 4, &got, 1, MPI_INT, 0, 8, s, &request);
        DO(Send, 4, &sent, 1, MPI_INT, 0, 8, s);
        DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
        DO(Comm_free, 0, &other);
        MPI_Type_free(&longer);
    }
    MPI_Comm_free_keyval(&key);
    say("deleted %d, got %d", deleted, got);

    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(w, handler);
    MPI_Comm_set_errhandler(s, handler); /* for what has no communicator in MPI 4 */
    other = w;
    say("freed %d", DO(Comm_free, 0, &other) == MPI_SUCCESS);
    DO(Barrier, 0, w);
#ifndef OPEN_MPI                /* its handles are pointers: that is not safe there at all */
    DO(Comm_dup, 0, w, &other);
    copy = other;
    DO(Comm_free, 0, &other);
    say("freed %d", DO(Comm_free, 0, &copy) == MPI_SUCCESS);
#endif
    say("errors %d", errors);
    MPI_Errhandler_free(&handler);
    end();
    return 0;
}
