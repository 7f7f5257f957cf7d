! `use mpi`: MPI_IN_PLACE and MPI_BOTTOM, in every collective that allows the first.
program in_place
  use mpi
  use conform
  implicit none
  integer :: ierr, me, np, i, root, own, triangle, request
  integer, allocatable :: a(:), n(:), at(:)
  integer :: w

  w = MPI_COMM_WORLD
  call MPI_Init(ierr)
  call did('MPI_Init', 0, ierr)
  call MPI_Comm_rank(w, me, ierr)
  call MPI_Comm_size(w, np, ierr)
  allocate (a(np * (np + 4)), n(np), at(np))
  root = np - 1
  own = 4 * (me + 1)
  triangle = np * (np + 1) / 2

  call fill()
  call MPI_Allreduce(MPI_IN_PLACE, a, 3, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Allreduce', 12, ierr)
  call say_int('Allreduce', a(1:3))
  call MPI_Scan(MPI_IN_PLACE, a, 3, MPI_INTEGER, MPI_MAX, w, ierr)
  call did('MPI_Scan', 12, ierr)
  call say_int('Scan', a(1:3))
  call MPI_Exscan(MPI_IN_PLACE, a, 3, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Exscan', 12, ierr)
  if (me > 0) call say_int('Exscan', a(1:3))
  call fill()
  if (me == root) then
    call MPI_Reduce(MPI_IN_PLACE, a, 3, MPI_INTEGER, MPI_SUM, root, w, ierr)
    call say_int('Reduce', a(1:3))
  else
    call MPI_Reduce(a, a(4), 3, MPI_INTEGER, MPI_SUM, root, w, ierr)
  end if
  call did('MPI_Reduce', 12, ierr)
  call fill()
  if (me == root) then
    call MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INTEGER, root, w, ierr)
    call say_int('Gather', a(1:2 * np))
  else
    call MPI_Gather(a, 2, MPI_INTEGER, a, 2, MPI_INTEGER, root, w, ierr)
  end if
  call did('MPI_Gather', 8, ierr)
  call fill()
  if (me == root) then
    call MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, n, at, MPI_INTEGER, root, w, ierr)
    call say_int('Gatherv', a(1:triangle))
  else
    call MPI_Gatherv(a, me + 1, MPI_INTEGER, a, n, at, MPI_INTEGER, root, w, ierr)
  end if
  call did('MPI_Gatherv', own, ierr)
  call fill()
  if (me == root) then
    call MPI_Scatter(a, 2, MPI_INTEGER, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root, w, ierr)
  else
    call MPI_Scatter(a, 2, MPI_INTEGER, a, 2, MPI_INTEGER, root, w, ierr)
  end if
  call did('MPI_Scatter', 8, ierr)
  call say_int('Scatter', a(1:2))
  call fill()
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INTEGER, w, ierr)
  call did('MPI_Allgather', 8, ierr)
  call say_int('Allgather', a(1:2 * np))
  call fill()
  call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, n, at, MPI_INTEGER, w, ierr)
  call did('MPI_Allgatherv', own, ierr)
  call say_int('Allgatherv', a(1:triangle))
  call fill()
  call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INTEGER, w, ierr)
  call did('MPI_Alltoall', 8 * np, ierr)
  call say_int('Alltoall', a(1:2 * np))
  call fill()
  call MPI_Reduce_scatter(MPI_IN_PLACE, a, n, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Reduce_scatter', 4 * triangle, ierr)
  call say_int('Reduce_scatter', a(1:me + 1))
  call fill()
  call MPI_Reduce_scatter_block(MPI_IN_PLACE, a, 2, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Reduce_scatter_block', 8 * np, ierr)
  call say_int('Reduce_scatter_block', a(1:2))
  call fill()
  call MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INTEGER, w, request, ierr)
  call did('MPI_Iallgather', 8, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call done('MPI_Wait', 1, ierr)
  call say_int('Iallgather', a(1:2 * np))
  call fill()
  call bottom()
  call finish(me, np)
  call MPI_Finalize(ierr)

contains
  subroutine fill()
    integer :: i, k
    a = [((me + 1) * 1000 + i, i=1, size(a))]
    k = 0
    do i = 1, np
      n(i) = i
      at(i) = k
      k = k + i
    end do
  end subroutine

  subroutine bottom()
    integer :: x(3), kinds(2), both, lengths(2), status(MPI_STATUS_SIZE), got(3), request
    double precision :: y(2)
    integer(kind=MPI_ADDRESS_KIND) :: places(2)
    x = me
    y = me + 0.25d0
    call MPI_Get_address(x, places(1), ierr)
    call MPI_Get_address(y, places(2), ierr)
    lengths = [3, 2]
    kinds = [MPI_INTEGER, MPI_DOUBLE_PRECISION]
    call MPI_Type_create_struct(2, lengths, places, kinds, both, ierr)
    call MPI_Type_commit(both, ierr)
    call MPI_Bcast(MPI_BOTTOM, 1, both, root, w, ierr)
    call did('MPI_Bcast', 28, ierr)
    call say_int('x', x)
    call say_real('y', y)
    x = x + me
    call MPI_Irecv(got, 3, MPI_INTEGER, mod(me + np - 1, np), 1, w, request, ierr)
    call did('MPI_Irecv', 12, ierr)
    call MPI_Type_free(both, ierr)
    call MPI_Type_create_hindexed(1, lengths, places, MPI_INTEGER, both, ierr)
    call MPI_Type_commit(both, ierr)
    call MPI_Send(MPI_BOTTOM, 1, both, mod(me + 1, np), 1, w, ierr)
    call did('MPI_Send', 12, ierr)
    call MPI_Wait(request, status, ierr)
    call done('MPI_Wait', 1, ierr)
    call MPI_Type_free(both, ierr)
    call say_int('got', got)
  end subroutine
end program
