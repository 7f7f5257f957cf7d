/* HDF5: every process writes its rows of a dataset, time step by time step, into one file.
   Arguments: the file, rows of the whole dataset, columns, time steps, "collective" or "independent". */
#include <hdf5.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "steps.h5";
  hsize_t whole[2] = {argc > 2 ? (hsize_t)atoi(argv[2]) : 64, argc > 3 ? (hsize_t)atoi(argv[3]) : 32};
  int steps = argc > 4 ? atoi(argv[4]) : 4, rank, ranks;
  int together = argc <= 5 || strcmp(argv[5], "independent");

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  hsize_t first[2] = {whole[0] * (hsize_t)rank / (hsize_t)ranks, 0};
  hsize_t rows = whole[0] * (hsize_t)(rank + 1) / (hsize_t)ranks - first[0];
  hsize_t own[2] = {rows, whole[1]};
  double *values = malloc(sizeof(double) * (size_t)(rows * whole[1] + 1));
  for (hsize_t k = 0; k < rows * whole[1]; k++) values[k] = (double)(first[0] * whole[1] + k);

  hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  H5Pset_dxpl_mpio(transfer, together ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
  hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  hid_t space = H5Screate_simple(2, whole, NULL), memory = H5Screate_simple(2, own, NULL);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, own, NULL);
  hid_t set = H5Dcreate2(file, "field", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT,
                         H5P_DEFAULT);
  for (int step = 0; step < steps; step++) {
    H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, values);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
  }
  H5Dclose(set);
  H5Sclose(memory);
  H5Sclose(space);
  H5Fclose(file);
  H5Pclose(transfer);
  H5Pclose(access);
  free(values);
  MPI_Finalize();
  return 0;
}
