/* MPI-IO: one shared file, written and read collectively, at offsets, through a view. */
#include "conform.h"

int main(void)
{
    MPI_File file;
    MPI_Status status;
    MPI_Request request;
    MPI_Datatype part;
    int out[4], in[4] = {0};
    begin();
    for (int i = 0; i < 4; i++)
        out[i] = me * 4 + i;
    int rc = DO(File_open, -1, MPI_COMM_WORLD, "not-there.dat", MPI_MODE_RDONLY, MPI_INFO_NULL,
                &file);
    say("missing file %d", rc != MPI_SUCCESS); /* files return errors by default */
    DO(File_open, -1, MPI_COMM_WORLD, "data.bin", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
       &file);
    DO(File_set_size, -1, file, 0);
    DO(File_write_at_all, -1, file, 16 * me, out, 4, MPI_INT, &status);
    DO(File_sync, -1, file);
    DO(Barrier, 0, MPI_COMM_WORLD);
    DO(File_read_at, -1, file, 16 * ((me + 1) % p), in, 4, MPI_INT, &status);
    int n;
    MPI_Get_count(&status, MPI_INT, &n);
    say("read %d: %d %d", n, in[0], in[3]);
    MPI_Type_vector(4, 1, p, MPI_INT, &part);
    MPI_Type_commit(&part);
    DO(File_set_view, -1, file, 4 * me, MPI_INT, part, "native", MPI_INFO_NULL);
    DO(File_read_all, -1, file, in, 4, MPI_INT, MPI_STATUS_IGNORE);
    say("view %d %d %d %d", in[0], in[1], in[2], in[3]);
    DO(File_set_view, -1, file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    DO(File_iwrite_at, -1, file, 4 * me, out, 4, MPI_INT, &request);
    DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
    DO(File_close, -1, &file);
    MPI_Type_free(&part);
    end();
    return 0;
}
