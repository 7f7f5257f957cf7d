! `use mpi_f08`: windows, all operations and all three kinds of synchronisation.
program f08_rma
  use mpi_f08
  use conform
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  implicit none
  integer :: me, np, right, left, i, old
  integer, asynchronous :: mine(4), got, one
  integer, pointer :: memory(:)
  integer(MPI_ADDRESS_KIND) :: disp
  type(MPI_Win) :: win, other
  type(MPI_Group) :: all, left_group, right_group
  type(MPI_Request) :: request
  type(c_ptr) :: base

  call MPI_Init()
  call did('MPI_Init', 0)
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, np)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  mine = [(me * 4 + i, i=0, 3)]
  one = 1
  got = -1
  call MPI_Win_create(mine, 16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
  call did('MPI_Win_create', 0)
  call MPI_Win_fence(MPI_MODE_NOPRECEDE, win)
  call did('MPI_Win_fence', 0)
  disp = 0
  call MPI_Put(me, 1, MPI_INTEGER, right, disp, 1, MPI_INTEGER, win)
  call did('MPI_Put', 4)
  disp = 2
  call MPI_Get(got, 1, MPI_INTEGER, right, disp, 1, MPI_INTEGER, win)
  call did('MPI_Get', 4)
  call MPI_Win_fence(0, win)
  call did('MPI_Win_fence', 0)
  call say_int('put and got', [mine(1), got])
  disp = 1
  call MPI_Accumulate(one, 1, MPI_INTEGER, 0, disp, 1, MPI_INTEGER, MPI_SUM, win)
  call did('MPI_Accumulate', 4)
  call MPI_Win_fence(MPI_MODE_NOSUCCEED, win)
  call did('MPI_Win_fence', 0)
  call say_int('accumulated', [mine(2)])

  call MPI_Comm_group(MPI_COMM_WORLD, all)
  call MPI_Group_incl(all, 1, [left], left_group)
  call MPI_Group_incl(all, 1, [right], right_group)
  disp = 2
  call MPI_Win_post(left_group, 0, win)
  call did('MPI_Win_post', 0)
  call MPI_Win_start(right_group, 0, win)
  call did('MPI_Win_start', 0)
  call MPI_Put(mine, 2, MPI_INTEGER, right, disp, 2, MPI_INTEGER, win)
  call did('MPI_Put', 8)
  call MPI_Win_complete(win)
  call did('MPI_Win_complete', 0)
  call MPI_Win_wait(win)
  call did('MPI_Win_wait', 0)
  call say_int('post and start', [mine(3)])
  call MPI_Group_free(all)
  call MPI_Group_free(left_group)
  call MPI_Group_free(right_group)
  call MPI_Win_free(win)
  call did('MPI_Win_free', 0)

  call MPI_Win_allocate(16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, other)
  call did('MPI_Win_allocate', 0)
  call c_f_pointer(base, memory, [4])
  memory = 0
  call MPI_Barrier(MPI_COMM_WORLD)
  call did('MPI_Barrier', 0)
  call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, other)
  call did('MPI_Win_lock', 0)
  disp = 0
  call MPI_Accumulate(one, 1, MPI_INTEGER, 0, disp, 1, MPI_INTEGER, MPI_SUM, other)
  call did('MPI_Accumulate', 4)
  call MPI_Win_unlock(0, other)
  call did('MPI_Win_unlock', 0)
  call MPI_Win_lock_all(0, other)
  call did('MPI_Win_lock_all', 0)
  disp = 1
  call MPI_Fetch_and_op(one, old, MPI_INTEGER, 0, disp, MPI_SUM, other)
  call did('MPI_Fetch_and_op', 4)
  call MPI_Win_flush(0, other)
  call did('MPI_Win_flush', 0)
  disp = 2
  call MPI_Rput(me, 1, MPI_INTEGER, right, disp, 1, MPI_INTEGER, other, request)
  call did('MPI_Rput', 4)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call done('MPI_Wait', 1)
  call MPI_Win_flush_all(other)
  call did('MPI_Win_flush_all', 0)
  call MPI_Win_unlock_all(other)
  call did('MPI_Win_unlock_all', 0)
  call MPI_Barrier(MPI_COMM_WORLD)
  call did('MPI_Barrier', 0)
  call say_int('passive', [memory(1), memory(2), memory(3), merge(1, 0, old >= 0 .and. old < np)])
  call MPI_Win_free(other)
  call did('MPI_Win_free', 0)
  call finish(me, np)
  call MPI_Finalize()
end program
