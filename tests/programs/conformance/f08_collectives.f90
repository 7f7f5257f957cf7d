! `use mpi_f08`: collectives, blocking and not, in place, with an operation of its own; groups.
module operations
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
contains
  subroutine larger(invec, inoutvec, len, datatype)
    ! Calls MPI itself, inside MPI_Allreduce.
    type(c_ptr), value :: invec, inoutvec
    integer :: len, bytes, i
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    call MPI_Type_size(datatype, bytes)
    call c_f_pointer(invec, a, [len * bytes / 4])
    call c_f_pointer(inoutvec, b, [len * bytes / 4])
    do i = 1, len * bytes / 4
      b(i) = max(a(i), b(i))
    end do
  end subroutine
end module

program f08_collectives
  use mpi_f08
  use conform
  use operations
  implicit none
  integer :: me, np, i, ierr, tri, size_
  integer :: a(4), b(100), c(100), n(20), at(20)
  double precision :: x(10), y(10)
  type(MPI_Comm) :: w, half, some
  type(MPI_Group) :: all, evens
  type(MPI_Op) :: op
  type(MPI_Request) :: requests(5)

  call MPI_Init(ierr)
  call did('MPI_Init', 0, ierr)
  w = MPI_COMM_WORLD
  call MPI_Comm_rank(w, me)
  call MPI_Comm_size(w, np)
  tri = 0
  do i = 1, np
    n(i) = i
    at(i) = tri
    tri = tri + i
  end do
  a = [me, 2 * me, np - me, 7]
  b = me
  call MPI_Barrier(w)
  call did('MPI_Barrier', 0)
  call MPI_Allreduce(a, b, 4, MPI_INTEGER, MPI_SUM, w)
  call did('MPI_Allreduce', 16)
  call say_int('sum', b(1:4))
  call MPI_Op_create(larger, .true., op)
  call MPI_Allreduce(a, b, 4, MPI_INTEGER, op, w)
  call did('MPI_Allreduce', 16)
  call say_int('larger', b(1:4))
  call MPI_Reduce(a, b, 4, MPI_INTEGER, op, np - 1, w)
  call did('MPI_Reduce', 16)
  call MPI_Op_free(op)
  call MPI_Allreduce(MPI_IN_PLACE, a, 4, MPI_INTEGER, MPI_MIN, w)
  call did('MPI_Allreduce', 16)
  call say_int('in place', a)
  b = me
  call MPI_Gatherv(b, me + 1, MPI_INTEGER, c, n, at, MPI_INTEGER, 0, w)
  call did('MPI_Gatherv', 4 * (me + 1))
  if (me == 0) call say_int('gatherv', c(1:tri))
  call MPI_Allgatherv(b, me + 1, MPI_INTEGER, c, n, at, MPI_INTEGER, w)
  call did('MPI_Allgatherv', 4 * (me + 1))
  call say_int('allgatherv', c(1:tri))
  call MPI_Scatterv(c, n, at, MPI_INTEGER, b, me + 1, MPI_INTEGER, 0, w)
  call did('MPI_Scatterv', 4 * (me + 1))
  call say_int('scatterv', b(1:me + 1))
  c(1:np) = [(me * 100 + i, i=1, np)]
  call MPI_Alltoall(c, 1, MPI_INTEGER, b, 1, MPI_INTEGER, w)
  call did('MPI_Alltoall', 4 * np)
  call say_int('alltoall', b(1:np))
  call MPI_Reduce_scatter(c, b, n, MPI_INTEGER, MPI_SUM, w)
  call did('MPI_Reduce_scatter', 4 * tri)
  call say_int('reduce_scatter', b(1:me + 1))
  x = me + 0.5d0
  call MPI_Exscan(x, y, 10, MPI_DOUBLE_PRECISION, MPI_SUM, w)
  call did('MPI_Exscan', 80)
  if (me > 0) call say_real('exscan', y(9:10))

  call MPI_Ibcast(x, 10, MPI_DOUBLE_PRECISION, np - 1, w, requests(1))
  call did('MPI_Ibcast', 80)
  call MPI_Iallreduce(a, b, 4, MPI_INTEGER, MPI_SUM, w, requests(2))
  call did('MPI_Iallreduce', 16)
  call MPI_Ibarrier(w, requests(3))
  call did('MPI_Ibarrier', 0)
  call MPI_Iallgather(me, 1, MPI_INTEGER, c, 1, MPI_INTEGER, w, requests(4))
  call did('MPI_Iallgather', 4)
  call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
  call done('MPI_Waitall', 4)
  call say_int('nonblocking', [b(1:4), c(1:np)])
  call say_real('ibcast', x(1:1))

  call MPI_Comm_split(w, mod(me, 2), -me, half)
  call did('MPI_Comm_split', 0)
  call MPI_Comm_size(half, size_)
  call MPI_Allreduce(me, i, 1, MPI_INTEGER, MPI_SUM, half)
  call did('MPI_Allreduce', 4)
  call say_int('half', [size_, i])
  call MPI_Comm_free(half)
  call did('MPI_Comm_free', 0)
  call MPI_Comm_group(w, all)
  call MPI_Group_incl(all, (np + 1) / 2, [(2 * i, i=0, (np - 1) / 2)], evens)
  call MPI_Comm_create(w, evens, some)
  call did('MPI_Comm_create', 0)
  if (some /= MPI_COMM_NULL) then
    call MPI_Bcast(i, 1, MPI_INTEGER, 0, some)
    call did('MPI_Bcast', 4)
    call MPI_Comm_free(some)
    call did('MPI_Comm_free', 0)
  end if
  call MPI_Group_free(all)
  call MPI_Group_free(evens)
  call finish(me, np)
  call MPI_Finalize(ierr)
end program
