! `use mpi_f08`: point-to-point with ierror left out and given, type(MPI_Status), wildcards.
program f08_p2p
  use mpi_f08
  use conform
  implicit none
  integer :: ierr, me, np, right, left, i, k, got, n, class, indices(4)
  integer :: a(8), b(8, 4)
  type(MPI_Request) :: requests(4), request
  type(MPI_Status) :: status, statuses(4)
  type(MPI_Message) :: message
  type(MPI_Comm) :: w
  logical :: flag, cancelled

  call MPI_Init()
  call did('MPI_Init', 0)
  w = MPI_COMM_WORLD
  call MPI_Comm_rank(w, me)
  call MPI_Comm_size(w, np)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  a = [(me * 10 + i, i=1, 8)]
  b = 0
  ! ierror left out everywhere
  call MPI_Irecv(b, 8, MPI_INTEGER, left, 1, w, request)
  call did('MPI_Irecv', 32)
  call MPI_Send(a, 5, MPI_INTEGER, right, 1, w)
  call did('MPI_Send', 20)
  call MPI_Wait(request, status)
  call done('MPI_Wait', 1)
  call MPI_Get_count(status, MPI_INTEGER, got)
  call say_int('no ierror', [status%MPI_SOURCE, status%MPI_TAG, got, b(5, 1)])
  call label('null', request == MPI_REQUEST_NULL)
  ! and given
  call MPI_Isend(a, 8, MPI_INTEGER, right, 2, w, request, ierr)
  call did('MPI_Isend', 32, ierr)
  call MPI_Recv(b, 8, MPI_INTEGER, MPI_ANY_SOURCE, 2, w, status, ierr)
  call did('MPI_Recv', 32, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call done('MPI_Wait', 1, ierr)
  call say_int('ierror', [ierr, status%MPI_SOURCE, status%MPI_TAG, b(8, 1)])
  call MPI_Sendrecv(a, 8, MPI_INTEGER, right, 3, b, 8, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, &
                    w, MPI_STATUS_IGNORE)
  call did('MPI_Sendrecv', 32)
  call did('MPI_Sendrecv_recv', 32)
  call MPI_Sendrecv_replace(a, 8, MPI_INTEGER, right, 4, left, 4, w, status)
  call did('MPI_Sendrecv_replace', 32)
  call did('MPI_Sendrecv_recv', 32)
  call say_int('replaced', [a(1), a(8), status%MPI_TAG])

  do k = 1, 6
    do i = 1, 4
      call MPI_Irecv(b(1, i), 8, MPI_INTEGER, merge(MPI_ANY_SOURCE, left, i == 2), i, w, &
                     requests(i))
      call did('MPI_Irecv', 32)
    end do
    call MPI_Barrier(w)
    call did('MPI_Barrier', 0)
    call MPI_Send(a, 1, MPI_INTEGER, right, 1, w)
    call did('MPI_Send', 4)
    call MPI_Ssend(a, 2, MPI_INTEGER, right, 2, w)
    call did('MPI_Ssend', 8)
    call MPI_Rsend(a, 3, MPI_INTEGER, right, 3, w)
    call did('MPI_Rsend', 12)
    call MPI_Send(a, 4, MPI_INTEGER, right, 4, w)
    call did('MPI_Send', 16)
    select case (k)
    case (1)
      call MPI_Waitall(4, requests, statuses)
      call done('MPI_Waitall', 4)
    case (2)
      call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
      call done('MPI_Waitall', 4)
    case (3)
      do i = 1, 4
        call MPI_Waitany(4, requests, n, status)
        call done('MPI_Waitany', 1)
        statuses(n) = status
      end do
    case (4)
      do i = 1, 4
        flag = .false.
        do while (.not. flag)
          call MPI_Testany(4, requests, n, flag, status)
          if (.not. flag) call poll()
        end do
        call done('MPI_Testany', 1)
        statuses(n) = status
      end do
    case (5)
      i = 0
      do while (i < 4)
        call MPI_Waitsome(4, requests, n, indices, statuses)
        call done('MPI_Waitsome', n)
        i = i + n
      end do
    case (6)
      do i = 1, 4
        flag = .false.
        do while (.not. flag)
          call MPI_Test(requests(i), flag, statuses(i))
          if (.not. flag) call poll()
        end do
        call done('MPI_Test', 1)
      end do
    end select
    if (k /= 2 .and. k /= 5) then
      do i = 1, 4
        call MPI_Get_count(statuses(i), MPI_INTEGER, got)
        call say_int('status', [statuses(i)%MPI_SOURCE, statuses(i)%MPI_TAG, got])
      end do
    end if
    call say_int('data', [b(1, 1), b(2, 2), b(3, 3), b(4, 4)])
  end do

  ! no request at all
  call MPI_Waitall(0, requests, statuses)
  call done('MPI_Waitall', 0)
  call MPI_Testall(0, requests, flag, MPI_STATUSES_IGNORE)
  call done('MPI_Testall', 0)
  call label('all', flag)
  call MPI_Waitany(0, requests, n, status)
  call done('MPI_Waitany', 0)
  call label('none', n == MPI_UNDEFINED)
  call MPI_Testany(0, requests, n, flag, status)
  call done('MPI_Testany', 0)
  call label('none', flag .and. n == MPI_UNDEFINED)
  call MPI_Waitsome(0, requests, n, indices, statuses)
  call done('MPI_Waitsome', 0)
  call MPI_Testsome(0, requests, n, indices, statuses)
  call done('MPI_Testsome', 0)
  call label('none', n == MPI_UNDEFINED)

  ! matched probe, cancel, errors
  call MPI_Isend(a, 6, MPI_INTEGER, right, 9, w, request)
  call did('MPI_Isend', 24)
  call MPI_Mprobe(left, 9, w, message, status)
  call did('MPI_Mprobe', 1)
  call MPI_Get_count(status, MPI_INTEGER, got)
  call MPI_Mrecv(b, got, MPI_INTEGER, message, status)
  call did('MPI_Mrecv', 4 * got)
  call say_int('matched', [status%MPI_TAG, got, b(6, 1)])
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call done('MPI_Wait', 1)
  call MPI_Irecv(b, 1, MPI_INTEGER, MPI_ANY_SOURCE, 77, w, request)
  call did('MPI_Irecv', 4)
  call MPI_Cancel(request)
  call MPI_Wait(request, status)
  call done('MPI_Wait', 1)
  call MPI_Test_cancelled(status, cancelled)
  call label('cancelled', cancelled)
  call MPI_Comm_set_errhandler(w, MPI_ERRORS_RETURN)
  call MPI_Send(a, 1, MPI_INTEGER, np + 1, 1, w, ierr)
  call did('MPI_Send', 4, ierr)
  call MPI_Error_class(ierr, class)
  call label('bad rank', class == MPI_ERR_RANK)
  call MPI_Isend(a, 8, MPI_INTEGER, right, 10, w, request)
  call did('MPI_Isend', 32)
  call MPI_Recv(b, 3, MPI_INTEGER, left, 10, w, status, ierr)
  call did('MPI_Recv', 12, ierr)
  call MPI_Error_class(ierr, class)
  call label('truncated', class == MPI_ERR_TRUNCATE)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call done('MPI_Wait', 1)
  call finish(me, np)
  call MPI_Finalize()
end program
