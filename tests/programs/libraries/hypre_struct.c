/* hypre: Poisson's equation on a structured grid cut into P x Q boxes, solved by PFMG or SMG.
   Arguments: points a side (of the whole grid), time steps, "pfmg" or "smg". */
#include <HYPRE_struct_ls.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static void solve_pfmg(HYPRE_StructMatrix A, HYPRE_StructVector b, HYPRE_StructVector x, int steps)
{
  HYPRE_StructSolver solver;
  HYPRE_StructPFMGCreate(MPI_COMM_WORLD, &solver);
  HYPRE_StructPFMGSetMaxIter(solver, 50);
  HYPRE_StructPFMGSetTol(solver, 1e-6);
  HYPRE_StructPFMGSetup(solver, A, b, x);
  for (int step = 0; step < steps; step++) {
    HYPRE_StructVectorSetConstantValues(x, 0.0);
    HYPRE_StructPFMGSolve(solver, A, b, x);
  }
  HYPRE_StructPFMGDestroy(solver);
}

static void solve_smg(HYPRE_StructMatrix A, HYPRE_StructVector b, HYPRE_StructVector x, int steps)
{
  HYPRE_StructSolver solver;
  HYPRE_StructSMGCreate(MPI_COMM_WORLD, &solver);
  HYPRE_StructSMGSetMaxIter(solver, 20);
  HYPRE_StructSMGSetTol(solver, 1e-6);
  HYPRE_StructSMGSetup(solver, A, b, x);
  for (int step = 0; step < steps; step++) {
    HYPRE_StructVectorSetConstantValues(x, 0.0);
    HYPRE_StructSMGSolve(solver, A, b, x);
  }
  HYPRE_StructSMGDestroy(solver);
}

int main(int argc, char **argv)
{
  int side = argc > 1 ? atoi(argv[1]) : 64, steps = argc > 2 ? atoi(argv[2]) : 3;
  int smg = argc > 3 && !strcmp(argv[3], "smg");
  int rank, ranks, dims[2] = {0, 0}, low[2], high[2];
  int offsets[5][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}}, entries[5] = {0, 1, 2, 3, 4};
  HYPRE_StructGrid grid;
  HYPRE_StructStencil stencil;
  HYPRE_StructMatrix A;
  HYPRE_StructVector b, x;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Dims_create(ranks, 2, dims);
  int at[2] = {rank / dims[1], rank % dims[1]};
  for (int d = 0; d < 2; d++) {
    low[d] = at[d] * side / dims[d];
    high[d] = (at[d] + 1) * side / dims[d] - 1;
  }
  int nx = high[0] - low[0] + 1, ny = high[1] - low[1] + 1;

  HYPRE_StructGridCreate(MPI_COMM_WORLD, 2, &grid);
  HYPRE_StructGridSetExtents(grid, low, high);
  HYPRE_StructGridAssemble(grid);
  HYPRE_StructStencilCreate(2, 5, &stencil);
  for (int k = 0; k < 5; k++) HYPRE_StructStencilSetElement(stencil, k, offsets[k]);
  HYPRE_StructMatrixCreate(MPI_COMM_WORLD, grid, stencil, &A);
  HYPRE_StructMatrixInitialize(A);
  double *values = malloc(sizeof(double) * 5 * (size_t)nx * (size_t)ny);
  for (int j = 0, m = 0; j < ny; j++)
    for (int i = 0; i < nx; i++, m += 5) {
      values[m] = 4.0;
      values[m + 1] = low[0] + i > 0 ? -1.0 : 0.0;
      values[m + 2] = low[0] + i < side - 1 ? -1.0 : 0.0;
      values[m + 3] = low[1] + j > 0 ? -1.0 : 0.0;
      values[m + 4] = low[1] + j < side - 1 ? -1.0 : 0.0;
    }
  HYPRE_StructMatrixSetBoxValues(A, low, high, 5, entries, values);
  HYPRE_StructMatrixAssemble(A);
  HYPRE_StructVectorCreate(MPI_COMM_WORLD, grid, &b);
  HYPRE_StructVectorCreate(MPI_COMM_WORLD, grid, &x);
  HYPRE_StructVectorInitialize(b);
  HYPRE_StructVectorInitialize(x);
  HYPRE_StructVectorSetConstantValues(b, 1.0);
  HYPRE_StructVectorAssemble(b);
  HYPRE_StructVectorAssemble(x);
  (smg ? solve_smg : solve_pfmg)(A, b, x, steps);
  HYPRE_StructVectorDestroy(b);
  HYPRE_StructVectorDestroy(x);
  HYPRE_StructMatrixDestroy(A);
  HYPRE_StructStencilDestroy(stencil);
  HYPRE_StructGridDestroy(grid);
  free(values);
  MPI_Finalize();
  return 0;
}
