/* Where calls on MPI's files read and write: prints "place RANK OPERATION OFFSET SPAN BYTES". */
#include <mpi.h>
#include <stdio.h>

static int rank, size;

static void place(const char *op, long offset, long span, long bytes)
{
    printf("place %d MPI_File_%s %ld %ld %ld\n", rank, op, offset, span, bytes);
}

int main(int argc, char **argv)
{
    enum { N = 60 };
    static double data[N];
    MPI_File f;
    MPI_Request r;
    MPI_Datatype part;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_File_open(MPI_COMM_WORLD, "places.dat", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    MPI_File_write_at_all(f, rank * N * 8, data, N, MPI_DOUBLE, MPI_STATUS_IGNORE);
    place("write_at_all", rank * N * 8, N * 8, N * 8);
    MPI_File_seek(f, 100, MPI_SEEK_SET);
    MPI_File_write(f, data, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    place("write", 100, 80, 80);
    MPI_File_read(f, data, 5, MPI_DOUBLE, MPI_STATUS_IGNORE);
    place("read", 180, 40, 40);
    MPI_File_iread_at(f, 16, data, 2, MPI_DOUBLE, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    place("iread_at", 16, 16, 16);
    MPI_File_set_view(f, 64, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    MPI_File_write_at(f, 3, data, 4, MPI_DOUBLE, MPI_STATUS_IGNORE);
    place("write_at", 64 + 24, 32, 32);
    /* Five doubles of each rank in turn. */
    MPI_Type_vector(N / 5, 5, 5 * size, MPI_DOUBLE, &part);
    MPI_Type_commit(&part);
    MPI_File_set_view(f, rank * 40, MPI_DOUBLE, part, "native", MPI_INFO_NULL);
    MPI_File_write_all(f, data, N, MPI_DOUBLE, MPI_STATUS_IGNORE);
    place("write_all", rank * 40, (N / 5 - 1) * 40L * size + 40, N * 8);
    MPI_File_read_at_all(f, 10, data, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    place("read_at_all", rank * 40 + 80L * size, 40L * size + 40, 80);
    MPI_File_close(&f);
    MPI_Type_free(&part);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
