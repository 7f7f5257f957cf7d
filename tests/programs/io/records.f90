! Writes a file of each process, and reads it: what the run-time library of Fortran does is seen.
program records
  use mpi
  implicit none
  integer, parameter :: n = 50000
  integer :: rank, ierr, unit, i
  double precision :: x(n)
  character(len=32) :: name
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  write(name, '(a,i0)') 'records.', rank
  x = rank
  do i = 1, 3
    open(newunit=unit, file=name, form='unformatted', access='stream', status='replace')
    write(unit) x
    close(unit)
  end do
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  open(newunit=unit, file=name, form='unformatted', access='stream', status='old')
  read(unit) x
  close(unit, status='delete')
  call MPI_Finalize(ierr)
end program
