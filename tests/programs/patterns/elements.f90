! Elements cut by ceilings in both directions, and one node more at the far ends; shared nodes are
! swapped along the sides, x fastest: elements [ex ey steps]
program elements
  use mpi
  implicit none
  integer :: rank, ranks, ierr, dims(2), x, y, ex, ey, steps, k, nodes(2), low, high
  double precision, allocatable :: out(:), in(:)
  character(len=20) :: word
  integer :: given(3), m
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  do m = 1, 3
    call get_command_argument(m, word)
    read (word, *) given(m)
  end do
  ex = given(1)
  ey = given(2)
  steps = given(3)
  dims = 0
  call MPI_Dims_create(ranks, 2, dims, ierr)
  x = mod(rank, dims(1))
  y = rank / dims(1)
  nodes = [own(ex, dims(1), x), own(ey, dims(2), y)]
  allocate (out(ex + ey + 2), in(ex + ey + 2))
  out = 0
  do k = 1, steps
    low = merge(rank - 1, MPI_PROC_NULL, x > 0)
    high = merge(rank + 1, MPI_PROC_NULL, x < dims(1) - 1)
    call swap(nodes(2))
    low = merge(rank - dims(1), MPI_PROC_NULL, y > 0)
    high = merge(rank + dims(1), MPI_PROC_NULL, y < dims(2) - 1)
    call swap(nodes(1))
  end do
  call MPI_Finalize(ierr)
contains
  integer function own(length, parts, c)
    integer, intent(in) :: length, parts, c
    own = ((c + 1) * length + parts - 1) / parts - (c * length + parts - 1) / parts
    if (c == parts - 1) own = own + 1
  end function
  subroutine swap(points)
    integer, intent(in) :: points
    call MPI_Sendrecv(out, points, MPI_DOUBLE_PRECISION, high, 1, in, points, MPI_DOUBLE_PRECISION, &
                      low, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Sendrecv(out, points, MPI_DOUBLE_PRECISION, low, 2, in, points, MPI_DOUBLE_PRECISION, &
                      high, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  end subroutine
end program
