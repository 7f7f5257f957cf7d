! Every completion of several requests, with none and with two of them at the same line: a list of
! requests is empty on ranks without neighbours. BINDING is 0: mpif.h, 1: use mpi, 2: use mpi_f08.
program completions
#if BINDING == 2
  use mpi_f08
#elif BINDING == 1
  use mpi
#endif
  use conform
  implicit none
#if BINDING == 0
  include 'mpif.h'
#endif
#if BINDING == 2
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: statuses(2)
#define FIRST statuses(1)
#else
#define FIRST statuses(:, 1)
  integer :: requests(2), statuses(MPI_STATUS_SIZE, 2)
#endif
  integer :: ierr, me, np, n, k, got, a(1), b(1), indices(2)
  logical :: flag

  call MPI_Init(ierr)
  call did('MPI_Init', 0, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, np, ierr)
  a = me
  do k = 0, 3
    n = 2 * mod(k, 2)
    call post()
    call MPI_Waitall(n, requests, statuses, ierr)
    call done('MPI_Waitall', n, ierr)
    call post()
    flag = .false.
    do while (.not. flag)
      call MPI_Testall(n, requests, flag, statuses, ierr)
      if (.not. flag) call poll()
    end do
    call done('MPI_Testall', n, ierr)
    call post()
    do got = 0, n / 2
      call MPI_Waitany(n, requests, indices(1), FIRST, ierr)
      call done('MPI_Waitany', n / 2, ierr)
      if (n == 0) call label('none', indices(1) == MPI_UNDEFINED)
    end do
    call post()
    do got = 0, n / 2
      flag = .false.
      do while (.not. flag)
        call MPI_Testany(n, requests, indices(1), flag, FIRST, ierr)
        if (.not. flag) call poll()
      end do
      call done('MPI_Testany', n / 2, ierr)
    end do
    call post()
    got = 0
    do while (got < n .or. (n == 0 .and. got == 0))
      call MPI_Waitsome(n, requests, np, indices, statuses, ierr)
      call done('MPI_Waitsome', max(np, 0), ierr)
      got = merge(1, got + np, n == 0)
    end do
    call post()
    got = 0
    do while (got < n .or. (n == 0 .and. got == 0))
      call MPI_Testsome(n, requests, np, indices, statuses, ierr)
      if (np == 0) call poll()
      if (np /= 0) call done('MPI_Testsome', max(np, 0), ierr)
      got = merge(1, got + np, n == 0)
    end do
  end do
  call MPI_Comm_size(MPI_COMM_WORLD, np, ierr)
  call finish(me, np)
  call MPI_Finalize(ierr)
contains
  subroutine post()
    if (n == 0) return
    call MPI_Irecv(b, 1, MPI_INTEGER, me, 0, MPI_COMM_WORLD, requests(1), ierr)
    call did('MPI_Irecv', 4, ierr)
    call MPI_Isend(a, 1, MPI_INTEGER, me, 0, MPI_COMM_WORLD, requests(2), ierr)
    call did('MPI_Isend', 4, ierr)
  end subroutine
end program
