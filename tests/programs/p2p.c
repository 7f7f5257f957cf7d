/* Point-to-point communication of every kind; also checks that the tracer leaves results,
 * statuses and return codes alone. */
#include "expect.h"

static int right, left;

static void blocking(void)
{
    double a[3] = {me, 1, 2}, b[3];
    MPI_Request r;
    MPI_Status s;
    MPI_Sendrecv(a, 3, MPI_DOUBLE, right, 5, b, 3, MPI_DOUBLE, left, 5, MPI_COMM_WORLD, &s);
    send_ev("MPI_Sendrecv", right, 24, 8, 5);
    send_ev("MPI_Sendrecv_recv", left, 24, 8, 5);
    check(b[0] == left && s.MPI_SOURCE == left && s.MPI_TAG == 5, "Sendrecv");
    MPI_Sendrecv(a, 2, MPI_DOUBLE, right, 6, b, 3, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    send_ev("MPI_Sendrecv", right, 16, 8, 6);
    send_ev("MPI_Sendrecv_recv", left, 24, 8, 6);
    MPI_Sendrecv_replace(a, 1, MPI_DOUBLE, right, 7, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    send_ev("MPI_Sendrecv_replace", right, 8, 8, 7);
    send_ev("MPI_Sendrecv_recv", left, 8, 8, 7);
    check(a[0] == left, "Sendrecv_replace");

    int x = me, y = -1;
    MPI_Irecv(&y, 1, MPI_INT, left, 9, MPI_COMM_WORLD, &r);
    send_ev("MPI_Irecv", left, 4, 4, 9);
    MPI_Send(&x, 1, MPI_INT, right, 9, MPI_COMM_WORLD);
    send_ev("MPI_Send", right, 4, 4, 9);
    MPI_Wait(&r, &s);
    done_ev("MPI_Wait", 1);
    check(y == left && s.MPI_SOURCE == left && r == MPI_REQUEST_NULL, "Wait");
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 0);

    MPI_Irecv(&y, 1, MPI_INT, left, 10, MPI_COMM_WORLD, &r);
    send_ev("MPI_Irecv", left, 4, 4, 10);
    MPI_Ssend(&x, 1, MPI_INT, right, 10, MPI_COMM_WORLD);
    send_ev("MPI_Ssend", right, 4, 4, 10);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);

    char *attached = malloc(4096 + MPI_BSEND_OVERHEAD);
    int attached_bytes = 4096 + MPI_BSEND_OVERHEAD;
    MPI_Buffer_attach(attached, attached_bytes);
    MPI_Bsend(&x, 1, MPI_INT, right, 11, MPI_COMM_WORLD);
    send_ev("MPI_Bsend", right, 4, 4, 11);
    MPI_Recv(&y, 1, MPI_INT, left, 11, MPI_COMM_WORLD, &s);
    send_ev("MPI_Recv", left, 4, 4, 11);
    check(y == left && s.MPI_TAG == 11, "Recv");
    MPI_Buffer_detach(&attached, &attached_bytes);
    ev("MPI_Buffer_detach", -1, 0, 1, -1, -1, -1);
    free(attached);

    MPI_Irecv(&y, 1, MPI_INT, left, 12, MPI_COMM_WORLD, &r);
    send_ev("MPI_Irecv", left, 4, 4, 12);
    MPI_Barrier(MPI_COMM_WORLD);
    coll_ev("MPI_Barrier", 0, 1, -1);
    MPI_Rsend(&x, 1, MPI_INT, right, 12, MPI_COMM_WORLD);
    send_ev("MPI_Rsend", right, 4, 4, 12);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
}

static void null_process(void)
{
    int x = 1, y = 77;
    MPI_Status s;
    MPI_Request r;
    MPI_Send(&x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    send_ev("MPI_Send", -3, 4, 4, 1);
    MPI_Recv(&y, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &s);
    send_ev("MPI_Recv", -3, 4, 4, -1);
    check(y == 77 && s.MPI_SOURCE == MPI_PROC_NULL, "Recv from MPI_PROC_NULL");
    MPI_Sendrecv(&x, 1, MPI_INT, MPI_PROC_NULL, 1, &y, 1, MPI_INT, MPI_PROC_NULL, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    send_ev("MPI_Sendrecv", -3, 4, 4, 1);
    send_ev("MPI_Sendrecv_recv", -3, 4, 4, 2);
    MPI_Irecv(&y, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &r);
    send_ev("MPI_Irecv", -3, 4, 4, 3);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
}

static void wildcards(void)
{
    int x = 100 + me, y = -1, flag = 0, index, n, indices[2];
    MPI_Request r[2];
    MPI_Status s[2];
    /* nonblocking, completed in every way, statuses ignored and not */
    for (int way = 0; way < 7; way++) {
        y = -1;
        MPI_Irecv(&y, 1, MPI_INT, MPI_ANY_SOURCE, way % 2 ? MPI_ANY_TAG : 20 + way,
                  MPI_COMM_WORLD, &r[0]);
        send_ev("MPI_Irecv", left, 4, 4, 20 + way);
        MPI_Isend(&x, 1, MPI_INT, right, 20 + way, MPI_COMM_WORLD, &r[1]);
        send_ev("MPI_Isend", right, 4, 4, 20 + way);
        if (way == 0) {
            MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
            done_ev("MPI_Waitall", 2);
        } else if (way == 1) {
            MPI_Waitall(2, r, s);
            done_ev("MPI_Waitall", 2);
            check(s[0].MPI_SOURCE == left && s[0].MPI_TAG == 21, "Waitall statuses");
        } else if (way == 2) {
            for (int i = 0; i < 2; i++) {
                MPI_Waitany(2, r, &index, MPI_STATUS_IGNORE);
                done_ev("MPI_Waitany", 1);
            }
            MPI_Waitany(2, r, &index, MPI_STATUS_IGNORE);
            done_ev("MPI_Waitany", 0);
            check(index == MPI_UNDEFINED, "Waitany of nothing");
        } else if (way == 3) {
            for (int left_over = 2; left_over > 0; left_over -= n) {
                MPI_Waitsome(2, r, &n, indices, MPI_STATUSES_IGNORE);
                done_ev("MPI_Waitsome", n);
            }
        } else if (way == 4) {
            for (flag = 0; !flag;) {
                MPI_Testall(2, r, &flag, MPI_STATUSES_IGNORE);
                failed_polls += !flag;
            }
            done_ev("MPI_Testall", 2);
        } else if (way == 5) {
            for (int i = 0; i < 2;) {
                MPI_Testany(2, r, &index, &flag, MPI_STATUS_IGNORE);
                if (flag) {
                    done_ev("MPI_Testany", 1);
                    i++;
                } else {
                    failed_polls++;
                }
            }
        } else {
            for (int left_over = 2; left_over > 0;) {
                MPI_Testsome(2, r, &n, indices, s);
                if (n)
                    done_ev("MPI_Testsome", n);
                else
                    failed_polls++;
                left_over -= n;
            }
        }
        check(y == 100 + left, "wildcard contents");
    }
    /* blocking */
    MPI_Isend(&x, 1, MPI_INT, right, 40, MPI_COMM_WORLD, &r[0]);
    send_ev("MPI_Isend", right, 4, 4, 40);
    MPI_Recv(&y, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    send_ev("MPI_Recv", left, 4, 4, 40);
    for (flag = 0; !flag;) {
        MPI_Request_get_status(r[0], &flag, MPI_STATUS_IGNORE); /* no event */
        failed_polls += !flag;
    }
    for (flag = 0; !flag;) {
        MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
        failed_polls += !flag;
    }
    done_ev("MPI_Test", 1);
    /* one that is cancelled stays unresolved */
    MPI_Irecv(&y, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &r[0]);
    send_ev("MPI_Irecv", -2, 4, 4, 99);
    MPI_Cancel(&r[0]);
    MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
}

static void probes(void)
{
    int x = me, y, flag, count;
    MPI_Request r[2];
    MPI_Status s;
    MPI_Message m;
    for (int way = 0; way < 4; way++) {
        MPI_Isend(&x, 1, MPI_INT, right, 50 + way, MPI_COMM_WORLD, &r[0]);
        send_ev("MPI_Isend", right, 4, 4, 50 + way);
        r[1] = MPI_REQUEST_NULL;
        if (way == 0) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &s);
            send_ev("MPI_Probe", left, 1, 1, 50);
            MPI_Get_count(&s, MPI_INT, &count);
            check(count == 1 && s.MPI_SOURCE == left, "Probe");
            MPI_Recv(&y, 1, MPI_INT, s.MPI_SOURCE, s.MPI_TAG, MPI_COMM_WORLD, &s);
            send_ev("MPI_Recv", left, 4, 4, 50);
        } else if (way == 1) {
            for (flag = 0; !flag;) {
                MPI_Iprobe(MPI_ANY_SOURCE, 51, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
                failed_polls += !flag;
            }
            send_ev("MPI_Iprobe", left, 1, 1, 51);
            MPI_Recv(&y, 1, MPI_INT, left, 51, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            send_ev("MPI_Recv", left, 4, 4, 51);
        } else if (way == 2) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &m, MPI_STATUS_IGNORE);
            send_ev("MPI_Mprobe", left, 1, 1, 52);
            MPI_Mrecv(&y, 1, MPI_INT, &m, &s);
            send_ev("MPI_Mrecv", left, 4, 4, 52);
            check(s.MPI_SOURCE == left && m == MPI_MESSAGE_NULL, "Mrecv");
        } else {
            for (flag = 0; !flag;) {
                MPI_Improbe(left, 53, MPI_COMM_WORLD, &flag, &m, MPI_STATUS_IGNORE);
                failed_polls += !flag;
            }
            send_ev("MPI_Improbe", left, 1, 1, 53);
            MPI_Imrecv(&y, 1, MPI_INT, &m, &r[1]);
            send_ev("MPI_Imrecv", left, 4, 4, 53);
        }
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        done_ev("MPI_Waitall", way == 3 ? 2 : 1);
        check(y == left, "probed contents");
    }
}

static void persistent(void)
{
    int x = me, y = -1, z = -1, flag;
    MPI_Request r[4];
    MPI_Status s[4];
    MPI_Send_init(&x, 1, MPI_INT, right, 60, MPI_COMM_WORLD, &r[0]);
    MPI_Ssend_init(&x, 1, MPI_INT, right, 61, MPI_COMM_WORLD, &r[1]);
    MPI_Recv_init(&y, 1, MPI_INT, left, 60, MPI_COMM_WORLD, &r[2]);
    MPI_Recv_init(&z, 2, MPI_INT, MPI_ANY_SOURCE, 61, MPI_COMM_WORLD, &r[3]);
    for (int turn = 0; turn < 3; turn++) {
        y = z = -1;
        MPI_Startall(4, r);
        send_ev("MPI_Send_init", right, 4, 4, 60);
        send_ev("MPI_Ssend_init", right, 4, 4, 61);
        send_ev("MPI_Recv_init", left, 4, 4, 60);
        send_ev("MPI_Recv_init", left, 8, 4, 61);
        if (turn == 0) {
            MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
        } else {
            MPI_Waitall(4, r, s);
            check(s[3].MPI_SOURCE == left && s[2].MPI_TAG == 60, "persistent statuses");
        }
        done_ev("MPI_Waitall", 4);
        check(y == left && z == left, "persistent contents");
    }
    MPI_Start(&r[3]);
    send_ev("MPI_Recv_init", left, 8, 4, 61);
    MPI_Start(&r[1]);
    send_ev("MPI_Ssend_init", right, 4, 4, 61);
    for (flag = 0; !flag;) {
        MPI_Testall(4, r, &flag, MPI_STATUSES_IGNORE);
        failed_polls += !flag;
    }
    done_ev("MPI_Testall", 2); /* two of the four are not active */
    for (int i = 0; i < 4; i++)
        MPI_Request_free(&r[i]);
    /* the freed handles mean other requests now */
    MPI_Irecv(&y, 1, MPI_INT, left, 62, MPI_COMM_WORLD, &r[0]);
    send_ev("MPI_Irecv", left, 4, 4, 62);
    MPI_Isend(&x, 1, MPI_INT, right, 62, MPI_COMM_WORLD, &r[1]);
    send_ev("MPI_Isend", right, 4, 4, 62);
    MPI_Waitall(2, r, s);
    done_ev("MPI_Waitall", 2);
}

static void many(void)
{
    enum { N = 100 };               /* more requests than the tracer has on its stack */
    int x[N], y[N];
    MPI_Request r[2 * N];
    for (int i = 0; i < N; i++) {
        MPI_Irecv(&y[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : left, i, MPI_COMM_WORLD, &r[i]);
        send_ev("MPI_Irecv", left, 4, 4, i);
    }
    for (int i = 0; i < N; i++) {
        x[i] = i;
        MPI_Isend(&x[i], 1, MPI_INT, right, i, MPI_COMM_WORLD, &r[N + i]);
        send_ev("MPI_Isend", right, 4, 4, i);
    }
    MPI_Waitall(2 * N, r, MPI_STATUSES_IGNORE);
    done_ev("MPI_Waitall", 2 * N);
    for (int i = 0; i < N; i++)
        check(y[i] == i, "many");
}

static void types(void)
{
    double a[16] = {0}, b[16];
    struct { char c; double d; } mixed[2], got[2];
    MPI_Datatype column, two_columns, pair, contiguous, resized;
    memset(mixed, 0, sizeof mixed);
    MPI_Type_vector(4, 1, 4, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Sendrecv(a, 1, column, right, 1, b, 4, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    send_ev("MPI_Sendrecv", right, 32, 8, 1);
    send_ev("MPI_Sendrecv_recv", left, 32, 8, 1);
    MPI_Type_create_resized(column, 0, 8, &resized);
    MPI_Type_contiguous(2, resized, &two_columns);
    MPI_Type_commit(&two_columns);
    MPI_Type_free(&column);
    MPI_Sendrecv(a, 1, two_columns, right, 2, b, 8, MPI_DOUBLE, left, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    send_ev("MPI_Sendrecv", right, 64, 8, 2);
    send_ev("MPI_Sendrecv_recv", left, 64, 8, 2);
    MPI_Type_free(&resized);
    MPI_Type_free(&two_columns);
    int lengths[2] = {1, 1};
    MPI_Aint where[2] = {(char *)&mixed[0].c - (char *)mixed, (char *)&mixed[0].d - (char *)mixed};
    MPI_Datatype kinds[2] = {MPI_CHAR, MPI_DOUBLE};
    MPI_Type_create_struct(2, lengths, where, kinds, &pair);
    MPI_Type_commit(&pair);
    MPI_Sendrecv(mixed, 1, pair, right, 3, got, 1, pair, left, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    send_ev("MPI_Sendrecv", right, 9, 1, 3);
    send_ev("MPI_Sendrecv_recv", left, 9, 1, 3);
    MPI_Type_free(&pair);
    /* same handle as a freed type, most likely, but other elements */
    for (int i = 0; i < 4; i++) {
        MPI_Type_contiguous(8, i % 2 ? MPI_INT : MPI_FLOAT_INT, &contiguous);
        MPI_Type_commit(&contiguous);
        MPI_Sendrecv(a, 1, contiguous, right, 4, b, 1, contiguous, left, 4, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        send_ev("MPI_Sendrecv", right, i % 2 ? 32 : 64, i % 2 ? 4 : 8, 4);
        send_ev("MPI_Sendrecv_recv", left, i % 2 ? 32 : 64, i % 2 ? 4 : 8, 4);
        MPI_Type_free(&contiguous);
    }
}

static void errors_are_no_events(void)
{
    int x = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rc = MPI_Send(&x, 1, MPI_INT, p + 5, 0, MPI_COMM_WORLD);
    check(rc != MPI_SUCCESS, "an error code comes through");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void large_counts(void)
{
#if MPI_VERSION >= 4
    int x = me, y = -1;
    MPI_Request r;
    MPI_Isend_c(&x, 1, MPI_INT, right, 70, MPI_COMM_WORLD, &r);
    send_ev("MPI_Isend", right, 4, 4, 70);
    MPI_Recv_c(&y, 1, MPI_INT, MPI_ANY_SOURCE, 70, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    send_ev("MPI_Recv", left, 4, 4, 70);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
    check(y == left, "large count names");
#endif
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    expect_open();
    ev("MPI_Init", -1, 0, 1, -1, -1, p);
    right = (me + 1) % p;
    left = (me + p - 1) % p;
    blocking();
    null_process();
    wildcards();
    probes();
    persistent();
    many();
    types();
    errors_are_no_events();
    large_counts();
    expect_close();
    MPI_Finalize();
    return 0;
}
