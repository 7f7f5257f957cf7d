/* A ring of partitioned messages: 8 partitions are ready one after the other; the receiver has 4. */
#include "tally.h"

enum { STEPS = 6, PARTS = 8 };

int main(int argc, char **argv)
{
    int n, me;
    MPI_Request out, in;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int right = (me + 1) % n, left = (me + n - 1) % n, size = 9000 / n;
    double *a = calloc(72000, sizeof *a), *b = calloc(72000, sizeof *b);
    MPI_Psend_init(a, PARTS, size, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &out);
    MPI_Precv_init(b, PARTS / 2, 2 * size, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &in);
    for (int i = 0; i < STEPS; i++) {
        MPI_Start(&in);
        MPI_Start(&out);
        for (int k = 0; k < PARTS - 4; k++) {
            work(a, 20000);
            MPI_Pready(k, out);
            sends(right, 8L * size);
        }
        work(a, 20000);
        MPI_Pready_range(PARTS - 4, PARTS - 3, out);
        MPI_Pready_list(2, (int[]){PARTS - 1, PARTS - 2}, out);
        for (int k = 0; k < 4; k++)
            sends(right, 8L * size);
        MPI_Wait(&out, MPI_STATUS_IGNORE);
        MPI_Wait(&in, MPI_STATUS_IGNORE);
        for (int k = 0; k < PARTS; k++)
            receives(left, 8L * size);
    }
    MPI_Request_free(&out);
    MPI_Request_free(&in);
    tell();
    MPI_Finalize();
    return 0;
}
