/* Block-tridiagonal solver with a diagonal multi-partition on p x p ranks: multipartition [steps]
 *
 * Per direction p stages forth and p back: every stage but the first receives, every stage but the
 * last sends. The faces are exchanged once before the steps as well.
 */
#include "phases.h"

enum { WORDS = 20, FACES = 6, FORTH = 100, BACK = 200 }; /* tags number the stages */

static int side;

static int shifted(int rows, int columns)
{
    int row = (rank / side + rows + side) % side, column = (rank % side + columns + side) % side;
    return row * side + column;
}

static void copy_faces(void)
{
    static double in[FACES][WORDS], out[FACES][WORDS];
    const int to[FACES] = {shifted(0, 1), shifted(0, -1), shifted(1, 0),
                           shifted(-1, 0), shifted(-1, -1), shifted(1, 1)};
    const int opposite[FACES] = {1, 0, 3, 2, 5, 4};
    MPI_Request r[2 * FACES];
    MPI_Irecv(in[0], WORDS, MPI_DOUBLE, to[0], opposite[0], MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(in[1], WORDS, MPI_DOUBLE, to[1], opposite[1], MPI_COMM_WORLD, &r[1]);
    MPI_Irecv(in[2], WORDS, MPI_DOUBLE, to[2], opposite[2], MPI_COMM_WORLD, &r[2]);
    MPI_Irecv(in[3], WORDS, MPI_DOUBLE, to[3], opposite[3], MPI_COMM_WORLD, &r[3]);
    MPI_Irecv(in[4], WORDS, MPI_DOUBLE, to[4], opposite[4], MPI_COMM_WORLD, &r[4]);
    MPI_Irecv(in[5], WORDS, MPI_DOUBLE, to[5], opposite[5], MPI_COMM_WORLD, &r[5]);
    MPI_Isend(out[0], WORDS, MPI_DOUBLE, to[0], 0, MPI_COMM_WORLD, &r[6]);
    MPI_Isend(out[1], WORDS, MPI_DOUBLE, to[1], 1, MPI_COMM_WORLD, &r[7]);
    MPI_Isend(out[2], WORDS, MPI_DOUBLE, to[2], 2, MPI_COMM_WORLD, &r[8]);
    MPI_Isend(out[3], WORDS, MPI_DOUBLE, to[3], 3, MPI_COMM_WORLD, &r[9]);
    MPI_Isend(out[4], WORDS, MPI_DOUBLE, to[4], 4, MPI_COMM_WORLD, &r[10]);
    MPI_Isend(out[5], WORDS, MPI_DOUBLE, to[5], 5, MPI_COMM_WORLD, &r[11]);
    MPI_Waitall(2 * FACES, r, MPI_STATUSES_IGNORE);
}

static void solve(int rows, int columns)
{
    static double in[WORDS], out[WORDS];
    MPI_Request sent, received;
    int next = shifted(rows, columns), before = shifted(-rows, -columns);
    for (int stage = 0; stage < side; stage++) {
        if (stage > 0) {
            MPI_Irecv(in, WORDS, MPI_DOUBLE, before, FORTH + stage, MPI_COMM_WORLD, &received);
            MPI_Wait(&sent, MPI_STATUS_IGNORE);
            MPI_Wait(&received, MPI_STATUS_IGNORE);
        }
        if (stage < side - 1)
            MPI_Isend(out, WORDS, MPI_DOUBLE, next, FORTH + stage + 1, MPI_COMM_WORLD, &sent);
    }
    for (int stage = side - 1; stage >= 0; stage--) {
        if (stage < side - 1) {
            MPI_Irecv(in, WORDS, MPI_DOUBLE, next, BACK + stage, MPI_COMM_WORLD, &received);
            MPI_Wait(&sent, MPI_STATUS_IGNORE);
            MPI_Wait(&received, MPI_STATUS_IGNORE);
        }
        if (stage > 0)
            MPI_Isend(out, WORDS, MPI_DOUBLE, before, BACK + stage - 1, MPI_COMM_WORLD, &sent);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int steps = argument(argc, argv, 1, 7);
    while ((side + 1) * (side + 1) <= size)
        side++;
    if (side * side != size) {
        if (rank == 0)
            fprintf(stderr, "multipartition: %d ranks are no square\n", size);
        MPI_Finalize();
        return 2;
    }
    double norm = 0.0, all;
    MPI_Bcast(&steps, 1, MPI_INT, 0, MPI_COMM_WORLD);
    copy_faces();
    for (int s = 0; s < steps; s++) {
        copy_faces();
        solve(0, 1);
        solve(1, 0);
        solve(-1, -1);
    }
    MPI_Allreduce(&norm, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
