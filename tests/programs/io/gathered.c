/* Rank 0 writes what all send it, as text and as bytes; every third time all write a strided view. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, n = 40000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int mine = n / size + (rank < n % size);
    double *part = calloc((size_t)mine, sizeof *part), *all = calloc((size_t)n, sizeof *all);
    int *counts = calloc((size_t)size, sizeof *counts), *at = calloc((size_t)size, sizeof *at);
    for (int r = 0, sum = 0; r < size; r++) {
        counts[r] = n / size + (r < n % size);
        at[r] = sum;
        sum += counts[r];
    }
    for (int t = 0; t < 6; t++) {
        MPI_Gatherv(part, mine, MPI_DOUBLE, all, counts, at, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (!rank) {
            FILE *f = fopen("gathered.dat", "w");
            fprintf(f, "%6d\n", t);
            for (int i = 0; i < n; i += 100)
                fwrite(all + i, sizeof *all, 100, f);
            fclose(f);
        }
        if (t % 3 == 2) {
            MPI_File file;
            MPI_Datatype view;
            MPI_Type_vector(50, 16, 16 * size, MPI_DOUBLE, &view);
            MPI_Type_commit(&view);
            MPI_File_open(MPI_COMM_WORLD, "strided.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY,
                          MPI_INFO_NULL, &file);
            MPI_File_set_view(file, rank * 128, MPI_DOUBLE, view, "native", MPI_INFO_NULL);
            MPI_File_write_all(file, all, 800, MPI_DOUBLE, MPI_STATUS_IGNORE);
            MPI_File_close(&file);
            MPI_Type_free(&view);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) {
        remove("gathered.dat");
        remove("strided.dat");
    }
    MPI_Finalize();
    return 0;
}
