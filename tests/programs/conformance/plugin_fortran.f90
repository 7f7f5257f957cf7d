! Opened by plugin_host.c, as an interpreter opens a module: completions with and without requests.
function run() bind(c)
  use mpi
  use conform
  use iso_c_binding
  implicit none
  integer(c_int) :: run
  integer :: requests(2), ierr, me, np, k, n, a(1), b(1)
  call MPI_Init(ierr)
  call did('MPI_Init', 0, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, np, ierr)
  a = me
  do k = 0, 3
    n = 2 * mod(k, 2)
    if (n > 0) then
      call MPI_Irecv(b, 1, MPI_INTEGER, me, 0, MPI_COMM_WORLD, requests(1), ierr)
      call did('MPI_Irecv', 4, ierr)
      call MPI_Isend(a, 1, MPI_INTEGER, me, 0, MPI_COMM_WORLD, requests(2), ierr)
      call did('MPI_Isend', 4, ierr)
    end if
    call MPI_Waitall(n, requests, MPI_STATUSES_IGNORE, ierr)
    call done('MPI_Waitall', n, ierr)
  end do
  call finish(me, np)
  call MPI_Finalize(ierr)
  run = 0
end function
