! Blocks of uneven length travel round a ring downwards, each rank sends what came last:
! caravan [points]
program caravan
  use mpi
  implicit none
  integer :: rank, ranks, ierr, n, step, owner
  character(len=20) :: word
  real, allocatable :: here(:), there(:)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, word)
  read (word, *) n
  allocate (here(n), there(n))
  here = 0
  do step = 0, ranks - 2
    owner = mod(rank + step, ranks)
    call MPI_Sendrecv(here, length(owner), MPI_REAL, modulo(rank - 1, ranks), 0, there, &
                      length(mod(owner + 1, ranks)), MPI_REAL, mod(rank + 1, ranks), 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  end do
  call MPI_Finalize(ierr)
contains
  integer function length(c)
    integer, intent(in) :: c
    length = n / ranks + merge(1, 0, c < mod(n, ranks))
  end function
end program
