/* FFTW: forward and backward transforms of a field of 2 or 3 dimensions, cut into slabs.
   Arguments: dimensions, points a side, time steps. */
#include <fftw3-mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
  int dim = argc > 1 ? atoi(argv[1]) : 2, steps = argc > 3 ? atoi(argv[3]) : 5;
  ptrdiff_t side = argc > 2 ? atoi(argv[2]) : 64, size[3] = {side, side, side}, rows, first;

  MPI_Init(&argc, &argv);
  fftw_mpi_init();
  ptrdiff_t room = fftw_mpi_local_size(dim, size, MPI_COMM_WORLD, &rows, &first);
  ptrdiff_t plane = dim == 2 ? side : side * side;
  fftw_complex *field = fftw_alloc_complex((size_t)room);
  fftw_plan forward = fftw_mpi_plan_dft(dim, size, field, field, MPI_COMM_WORLD, FFTW_FORWARD,
                                        FFTW_ESTIMATE | FFTW_MPI_TRANSPOSED_OUT);
  fftw_plan backward = fftw_mpi_plan_dft(dim, size, field, field, MPI_COMM_WORLD, FFTW_BACKWARD,
                                         FFTW_ESTIMATE | FFTW_MPI_TRANSPOSED_IN);
  for (ptrdiff_t k = 0; k < rows * plane; k++) {
    field[k][0] = (double)((first * plane + k) % 7);
    field[k][1] = 0.0;
  }
  for (int step = 0; step < steps; step++) {
    fftw_execute(forward);
    fftw_execute(backward);
    for (ptrdiff_t k = 0; k < rows * plane; k++) field[k][0] /= (double)(side * plane);
  }
  fftw_destroy_plan(forward);
  fftw_destroy_plan(backward);
  fftw_free(field);
  fftw_mpi_cleanup();
  MPI_Finalize();
  return 0;
}
