! Pipelined sweeps from the four corners of a grid, column by column: corners [nx ny blocks]
program corners
  use mpi
  implicit none
  integer :: rank, ranks, ierr, dims(2), x, y, nx, ny, blocks, corner, b, way(2)
  double precision, allocatable :: edge(:)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  nx = number(1, 93)
  ny = number(2, 70)
  blocks = number(3, 3)
  dims = 0
  call MPI_Dims_create(ranks, 2, dims, ierr)
  x = mod(rank, dims(1))
  y = rank / dims(1)
  allocate (edge(nx + ny))
  edge = 0
  do corner = 0, 3
    way = [1 - 2 * mod(corner, 2), 1 - 2 * (corner / 2)]
    do b = 1, blocks
      call receive(x - way(1), y, share(ny, dims(2), y))
      call receive(x, y - way(2), share(nx, dims(1), x))
      call pass(x + way(1), y, share(ny, dims(2), y))
      call pass(x, y + way(2), share(nx, dims(1), x))
    end do
  end do
  call MPI_Finalize(ierr)
contains
  integer function number(k, default)
    integer, intent(in) :: k, default
    character(len=20) :: word
    number = default
    if (command_argument_count() >= k) then
      call get_command_argument(k, word)
      read (word, *) number
    end if
  end function
  integer function share(length, parts, c)
    integer, intent(in) :: length, parts, c
    share = length / parts + merge(1, 0, c < mod(length, parts))
  end function
  logical function inside(a, b)
    integer, intent(in) :: a, b
    inside = a >= 0 .and. a < dims(1) .and. b >= 0 .and. b < dims(2)
  end function
  subroutine receive(a, b, points)
    integer, intent(in) :: a, b, points
    if (inside(a, b)) call MPI_Recv(edge, points, MPI_DOUBLE_PRECISION, a + dims(1) * b, corner, &
                                    MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  end subroutine
  subroutine pass(a, b, points)
    integer, intent(in) :: a, b, points
    if (inside(a, b)) call MPI_Send(edge, points, MPI_DOUBLE_PRECISION, a + dims(1) * b, corner, &
                                    MPI_COMM_WORLD, ierr)
  end subroutine
end program
