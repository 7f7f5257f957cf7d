/* A message of each kind of datatype; its tag says how many bytes it has in a row, 0: contiguous. */
#include <mpi.h>

#define SIDE 100
#define REAL MPI_DOUBLE

static double from[SIDE][SIDE], to[SIDE][SIDE];
static int me, p;

static void ring(MPI_Datatype type, int count, int block)
{
    MPI_Type_commit(&type);
    MPI_Sendrecv(from, count, type, (me + 1) % p, block, to, count, type, (me + p - 1) % p, block,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
}

static void subarray(int rows, int columns, int order, int block)
{
    MPI_Datatype type;
    int sizes[2] = {SIDE, SIDE}, parts[2] = {rows, columns}, starts[2] = {0, 0};
    MPI_Type_create_subarray(2, sizes, parts, starts, order, REAL, &type);
    ring(type, 1, block);
}

int main(int argc, char **argv)
{
    MPI_Datatype type, inner;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    MPI_Type_vector(SIDE, 1, SIDE, REAL, &type);
    ring(type, 1, 8);
    MPI_Type_vector(SIDE, 10, SIDE, REAL, &type);
    ring(type, 1, 80);
    MPI_Type_vector(10, 10, 10, REAL, &type);   /* without gaps */
    ring(type, 2, 0);
    MPI_Type_contiguous(50, REAL, &type);
    ring(type, 3, 0);
    MPI_Type_indexed(3, (int[]){1, 2, 3}, (int[]){0, 5, 10}, REAL, &type);
    ring(type, 1, 16);
    MPI_Type_create_indexed_block(4, 3, (int[]){0, 5, 10, 20}, REAL, &type);
    ring(type, 1, 24);
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 16},
                           (MPI_Datatype[]){MPI_INT, REAL}, &type);
    ring(type, 1, 6);
    MPI_Type_create_resized(REAL, 0, 64, &type);
    ring(type, 1, 0);                           /* one piece */
    MPI_Type_create_resized(REAL, 0, 64, &type);
    ring(type, 5, 8);
    MPI_Type_contiguous(4, REAL, &inner);
    MPI_Type_vector(5, 2, 3, inner, &type);
    MPI_Type_free(&inner);
    ring(type, 1, 64);
    MPI_Type_vector(SIDE, 1, SIDE, REAL, &inner);
    MPI_Type_create_hvector(3, 1, sizeof(double), inner, &type);
    MPI_Type_free(&inner);
    ring(type, 1, 8);
    subarray(10, 20, MPI_ORDER_C, 160);
    subarray(10, 20, MPI_ORDER_FORTRAN, 80);
    subarray(10, SIDE, MPI_ORDER_C, 0);
    MPI_Finalize();
    return 0;
}
