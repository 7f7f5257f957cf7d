/* PETSc: Poisson's equation on a DMDA of 2 or 3 dimensions, solved by conjugate gradients with
   Jacobi. Arguments: dimensions, points a side, time steps; a 4th, "grows", multiplies the points of
   the last dimension by the number of processes. PETSc's options may follow. */
#include <petscdmda.h>
#include <petscksp.h>
#include <stdlib.h>
#include <string.h>

static PetscErrorCode fill(DM da, Mat A, PetscInt dim)
{
  PetscInt at[3], size[3], whole[3] = {1, 1, 1};
  PetscFunctionBeginUser;
  PetscCall(DMDAGetCorners(da, &at[0], &at[1], &at[2], &size[0], &size[1], &size[2]));
  PetscCall(DMDAGetInfo(da, NULL, &whole[0], &whole[1], &whole[2], NULL, NULL, NULL, NULL, NULL,
                        NULL, NULL, NULL, NULL));
  for (PetscInt k = at[2]; k < at[2] + size[2]; k++)
    for (PetscInt j = at[1]; j < at[1] + size[1]; j++)
      for (PetscInt i = at[0]; i < at[0] + size[0]; i++) {
        MatStencil row = {.i = i, .j = j, .k = k}, column[7];
        PetscScalar value[7];
        PetscInt n = 0, here[3] = {i, j, k};
        column[n] = row;
        value[n++] = 2.0 * dim;
        for (PetscInt d = 0; d < dim; d++)
          for (PetscInt side = -1; side <= 1; side += 2) {
            MatStencil to = row;
            if (here[d] + side < 0 || here[d] + side >= whole[d]) continue;
            if (d == 0) to.i += side;
            if (d == 1) to.j += side;
            if (d == 2) to.k += side;
            column[n] = to;
            value[n++] = -1.0;
          }
        PetscCall(MatSetValuesStencil(A, 1, &row, n, column, value, INSERT_VALUES));
      }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  PetscInt dim = argc > 1 ? atoi(argv[1]) : 2, side = argc > 2 ? atoi(argv[2]) : 64, last = side;
  int steps = argc > 3 ? atoi(argv[3]) : 3, ranks;
  DM da;
  Mat A;
  Vec x, b;
  KSP ksp;
  PC pc;

  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &ranks));
  if (argc > 4 && !strcmp(argv[4], "grows")) last = side * ranks;
  if (dim == 2)
    PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR,
                           side, last, PETSC_DECIDE, PETSC_DECIDE, 1, 1, NULL, NULL, &da));
  else
    PetscCall(DMDACreate3d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE,
                           DMDA_STENCIL_STAR, side, side, last, PETSC_DECIDE, PETSC_DECIDE,
                           PETSC_DECIDE, 1, 1, NULL, NULL, NULL, &da));
  PetscCall(DMSetUp(da));
  PetscCall(DMCreateMatrix(da, &A));
  PetscCall(fill(da, A, dim));
  PetscCall(DMCreateGlobalVector(da, &x));
  PetscCall(VecDuplicate(x, &b));
  PetscCall(VecSet(b, 1.0));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCJACOBI));
  PetscCall(KSPSetFromOptions(ksp));
  for (int step = 0; step < steps; step++) {
    PetscCall(KSPSolve(ksp, b, x));
    PetscCall(VecAXPY(b, 0.1, x));
  }
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&A));
  PetscCall(DMDestroy(&da));
  return PetscFinalize();
}
