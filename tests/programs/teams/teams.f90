program teams
  use mpi
  implicit none
  integer :: i, ierr, level, s
  real(8) :: x(1000)
  call MPI_Init_thread(MPI_THREAD_FUNNELED, level, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  do i = 1, 4
    call fill(x)
  end do
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  s = 0
  !$omp parallel num_threads(3)
  !$omp do schedule(dynamic, 10)
  do i = 1, 1000
    x(i) = x(i) + i
  end do
  !$omp end do
  !$omp critical
  s = s + 1
  !$omp end critical
  !$omp end parallel
  if (s /= 3) stop 1
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
contains
  subroutine fill(x)
    real(8), intent(out) :: x(:)
    integer :: k
    !$omp parallel do num_threads(3)
    do k = 1, size(x)
      x(k) = k
    end do
    !$omp end parallel do
  end subroutine fill
end program teams
