! A ring with `use mpi_f08`: a fence, a post and start, and a lock in each step.
program halo
  use mpi_f08
  implicit none
  integer, parameter :: cells = 250, steps = 5
  integer :: me, np, right, left, step
  real(8), asynchronous :: memory(4 * cells), mine(cells)
  integer(MPI_ADDRESS_KIND) :: at
  type(MPI_Win) :: win
  type(MPI_Group) :: all, before, after

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, np)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  memory = 0
  mine = me
  call MPI_Comm_group(MPI_COMM_WORLD, all)
  call MPI_Group_incl(all, 1, [left], before)
  call MPI_Group_incl(all, 1, [right], after)
  call MPI_Win_create(memory, 32_MPI_ADDRESS_KIND * cells, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win)
  do step = 1, steps
    call MPI_Win_fence(0, win)
    at = 0
    call MPI_Put(mine, cells, MPI_REAL8, right, at, cells, MPI_REAL8, win)
    call MPI_Win_fence(0, win)
    at = cells
    call MPI_Win_post(before, 0, win)
    call MPI_Win_start(after, 0, win)
    call MPI_Accumulate(mine, cells / 2, MPI_REAL8, right, at, cells / 2, MPI_REAL8, MPI_SUM, win)
    call MPI_Win_complete(win)
    call MPI_Win_wait(win)
    call MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win)
    call MPI_Get(mine, cells / 5, MPI_REAL8, right, 3 * at, cells / 5, MPI_REAL8, win)
    call MPI_Win_unlock(right, win)
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
  call MPI_Win_free(win)
  print '(a, 5(1x, i0))', 'tally', me, 3 * steps, 8 * steps * (cells + cells / 2 + cells / 5), &
    3 * steps, 8 * steps * (cells + cells / 2 + cells / 5)
  call MPI_Finalize()
end program
