! ScaLAPACK: a linear system on a P x Q grid of processes, by LU (pdgetrf) or Cholesky (pdpotrf).
! Arguments: rows, rows of a block, factorisations, "lu" or "cholesky".
program factorise
  use mpi
  implicit none
  integer :: n, nb, steps, step, rank, ranks, ierr, context, dims(2), nprow, npcol, myrow, mycol
  integer :: rows, cols, i, j, gi, gj, desc(9), info
  integer, allocatable :: pivots(:)
  double precision, allocatable :: a(:, :)
  integer, external :: numroc, indxl2g
  character(16) :: word, kind

  n = number(1, 256)
  nb = number(2, 16)
  steps = number(3, 2)
  kind = "lu"
  if (command_argument_count() >= 4) call get_command_argument(4, kind)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  dims = 0
  call MPI_Dims_create(ranks, 2, dims, ierr)
  call blacs_get(-1, 0, context)
  call blacs_gridinit(context, 'R', dims(1), dims(2))
  call blacs_gridinfo(context, nprow, npcol, myrow, mycol)
  rows = max(1, numroc(n, nb, myrow, 0, nprow))
  cols = max(1, numroc(n, nb, mycol, 0, npcol))
  call descinit(desc, n, n, nb, nb, 0, 0, context, rows, info)
  allocate (a(rows, cols), pivots(rows + nb))
  do step = 1, steps
    do j = 1, cols
      gj = indxl2g(j, nb, mycol, 0, npcol)
      do i = 1, rows
        gi = indxl2g(i, nb, myrow, 0, nprow)
        a(i, j) = 1d0/(1d0 + abs(gi - gj))
        if (gi == gj) a(i, j) = a(i, j) + n
      end do
    end do
    if (kind == "cholesky") then
      call pdpotrf('L', n, a, 1, 1, desc, info)
    else
      call pdgetrf(n, n, a, 1, 1, desc, pivots, info)
    end if
    if (info /= 0) error stop 1
  end do
  call blacs_gridexit(context)
  call MPI_Finalize(ierr)

contains

  integer function number(at, otherwise)
    integer, intent(in) :: at, otherwise
    number = otherwise
    if (command_argument_count() < at) return
    call get_command_argument(at, word)
    read (word, *) number
  end function number
end program factorise
