/* Callbacks that call MPI themselves: attributes, error handlers, user-defined operations,
 * generalized requests. What they call inside an MPI call is no event. */
#include "conform.h"

static int copies, deletes, errors, sums, queries;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    int size;
    (void)key, (void)extra;
    MPI_Comm_size(comm, &size);
    MPI_Barrier(MPI_COMM_SELF); /* inside MPI_Comm_dup: not counted */
    *(void **)out = (char *)in + size;
    *flag = 1;
    copies++;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    int rank;
    (void)key, (void)value, (void)extra;
    MPI_Comm_rank(comm, &rank);
    MPI_Barrier(MPI_COMM_SELF);
    deletes++;
    return MPI_SUCCESS;
}

static void on_error(MPI_Comm *comm, int *code, ...)
{
    int rank, class;
    MPI_Comm_rank(*comm, &rank);
    MPI_Error_class(*code, &class);
    MPI_Barrier(MPI_COMM_SELF);
    errors += class == MPI_ERR_RANK;
}

static void sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    int size;
    MPI_Type_size(*type, &size);
    for (int i = 0; i < *n * size / 4; i++)
        ((int *)inout)[i] += ((int *)in)[i];
    sums++;
}

static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 4;
    status->MPI_TAG = 5;
    queries++;
    return MPI_SUCCESS;
}

static int nothing(void *extra) { return (void)extra, MPI_SUCCESS; }

static int nothing_else(void *extra, int complete)
{
    return (void)extra, (void)complete, MPI_SUCCESS;
}

int main(void)
{
    MPI_Comm w = MPI_COMM_WORLD, a, b;
    MPI_Errhandler handler;
    MPI_Op op;
    MPI_Request request;
    MPI_Status status;
    int key, flag, values[4] = {0}, results[4];
    void *found;
    static char place[1000];
    begin();
    DO(Comm_dup, 0, w, &a);
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, NULL);
    MPI_Comm_set_attr(a, key, place);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, place); /* deleted in MPI_Finalize */
    DO(Comm_dup, 0, a, &b);
    MPI_Comm_get_attr(b, key, &found, &flag);
    say("copied %d, found %d, %d", copies, flag, (int)((char *)found - place) == p);
    DO(Comm_free, 0, &b);
    MPI_Comm_set_attr(a, key, place + 1); /* deletes the old value */
    say("deleted %d", deletes);

    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(a, handler);
    for (int i = 0; i < 3; i++)
        say("failed %d", DO(Send, 4, values, 1, MPI_INT, p + i, 1, a) != MPI_SUCCESS);
    say("errors %d", errors);
    MPI_Errhandler_free(&handler);

    MPI_Op_create(sum, 1, &op);
    for (int i = 0; i < 4; i++)
        values[i] = me * 4 + i;
    DO(Allreduce, 16, values, results, 4, MPI_INT, op, w);
    say("Allreduce %d %d", results[0], results[3]);
    DO(Reduce, 16, values, results, 4, MPI_INT, op, 0, w);
    DO(Scan, 16, values, results, 4, MPI_INT, op, w);
    say("Scan %d %d, called %d", results[0], results[3], sums > 0 || p == 1);
    MPI_Op_free(&op);

    MPI_Grequest_start(query, nothing, nothing_else, NULL, &request);
    MPI_Test(&request, &flag, &status);
    polls += !flag;
    MPI_Grequest_complete(request);
    DONE(Wait, 1, &request, &status);
    say_status("generalized", &status, MPI_INT);
    say("queried %d", queries);

    DO(Comm_free, 0, &a);
    say("deleted %d", deletes);
    MPI_Comm_free_keyval(&key);
    end();
    return 0;
}
