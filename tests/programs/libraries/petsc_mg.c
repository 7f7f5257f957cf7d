/* PETSc: Poisson's equation on a 2-D DMDA, solved by conjugate gradients with a multigrid (PCMG) over
   the levels of the DMDA. Arguments: points a side, levels, time steps. PETSc's options may follow. */
#include <petscdmda.h>
#include <petscksp.h>
#include <stdlib.h>

static PetscErrorCode operators(KSP ksp, Mat J, Mat A, void *unused)
{
  DM da;
  PetscInt xs, ys, xm, ym, mx, my;
  PetscFunctionBeginUser;
  (void)unused;
  (void)J;
  PetscCall(KSPGetDM(ksp, &da));
  PetscCall(DMDAGetInfo(da, NULL, &mx, &my, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                        NULL));
  PetscCall(DMDAGetCorners(da, &xs, &ys, NULL, &xm, &ym, NULL));
  for (PetscInt j = ys; j < ys + ym; j++)
    for (PetscInt i = xs; i < xs + xm; i++) {
      MatStencil row = {.i = i, .j = j}, column[5];
      PetscScalar value[5];
      PetscInt n = 0;
      column[n] = row;
      value[n++] = 4.0;
      for (int k = 0; k < 4; k++) {
        MatStencil to = row;
        to.i += (k == 0) - (k == 1);
        to.j += (k == 2) - (k == 3);
        if (to.i < 0 || to.i >= mx || to.j < 0 || to.j >= my) continue;
        column[n] = to;
        value[n++] = -1.0;
      }
      PetscCall(MatSetValuesStencil(A, 1, &row, n, column, value, INSERT_VALUES));
    }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

static PetscErrorCode right_side(KSP ksp, Vec b, void *unused)
{
  PetscFunctionBeginUser;
  (void)ksp;
  (void)unused;
  PetscCall(VecSet(b, 1.0));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  PetscInt side = argc > 1 ? atoi(argv[1]) : 65, levels = argc > 2 ? atoi(argv[2]) : 3;
  int steps = argc > 3 ? atoi(argv[3]) : 3;
  DM da;
  KSP ksp;
  PC pc;

  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR,
                         side, side, PETSC_DECIDE, PETSC_DECIDE, 1, 1, NULL, NULL, &da));
  PetscCall(DMSetUp(da));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetDM(ksp, da));
  PetscCall(KSPSetComputeOperators(ksp, operators, NULL));
  PetscCall(KSPSetComputeRHS(ksp, right_side, NULL));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCMG));
  PetscCall(PCMGSetLevels(pc, levels, NULL));
  PetscCall(PCMGSetGalerkin(pc, PC_MG_GALERKIN_NONE));
  PetscCall(KSPSetFromOptions(ksp));
  for (int step = 0; step < steps; step++)
    PetscCall(KSPSolve(ksp, NULL, NULL));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(DMDestroy(&da));
  return PetscFinalize();
}
