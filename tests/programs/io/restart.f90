! Blocks of a grid, written by each process and read by all together, each at its place.
program restart
  use mpi
  implicit none
  integer, parameter :: total = 120000
  integer :: rank, size, ierr, file, n, i
  integer(kind=MPI_OFFSET_KIND) :: place
  double precision, allocatable :: x(:)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  n = total / size
  allocate(x(n))
  x = rank
  place = 8_MPI_OFFSET_KIND * n * rank
  do i = 1, 5
    call MPI_File_open(MPI_COMM_WORLD, 'restart.dat', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
    call MPI_File_write_at(file, place, x, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierr)
    call MPI_File_sync(file, ierr)
    call MPI_File_seek(file, place, MPI_SEEK_SET, ierr)
    call MPI_File_read_all(file, x, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierr)
    call MPI_File_close(file, ierr)
  end do
  call MPI_Finalize(ierr)
end program
