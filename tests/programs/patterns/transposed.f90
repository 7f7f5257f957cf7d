! A square grid, ranks by columns: each block goes to its mirror image: transposed [n rounds]
program transposed
  use mpi
  implicit none
  integer :: rank, ranks, ierr, p, i, j, n, rounds, k, mirror
  character(len=20) :: word
  double precision, allocatable :: out(:), in(:)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, word)
  read (word, *) n
  call get_command_argument(2, word)
  read (word, *) rounds
  p = nint(sqrt(dble(ranks)))
  i = mod(rank, p)
  j = rank / p
  mirror = j + p * i
  allocate (out(n * n), in(n * n))
  out = 0
  do k = 1, rounds
    if (mirror /= rank) call MPI_Sendrecv(out, rows(i) * rows(j), MPI_DOUBLE_PRECISION, mirror, 3, in, &
      rows(i) * rows(j), MPI_DOUBLE_PRECISION, mirror, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Allreduce(MPI_IN_PLACE, out, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  end do
  call MPI_Finalize(ierr)
contains
  integer function rows(c)
    integer, intent(in) :: c
    rows = (c + 1) * n / p - c * n / p
  end function
end program
