C     Point-to-point through mpif.h in fixed form: statuses as integer arrays of MPI_STATUS_SIZE,
C     logical flags, MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE, error codes.
      program p2p
      use conform
      implicit none
      include 'mpif.h'
      integer n
      parameter (n = 4)
      integer ierr, me, np, right, left, i, k, got, outc, ic
      integer status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2*n)
      integer requests(2*n), ind(2*n), a(10), b(10, n)
      logical flag
      double precision x(5), y(5)

      call MPI_INIT(ierr)
      call did('MPI_Init', 0, ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, me, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, np, ierr)
      right = mod(me + 1, np)
      left = mod(me + np - 1, np)
      do i = 1, 10
        a(i) = me*100 + i
      end do
      call MPI_IRECV(b, 10, MPI_INTEGER, left, 1, MPI_COMM_WORLD,
     &               requests(1), ierr)
      call did('MPI_Irecv', 40, ierr)
      call MPI_SEND(a, 7, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierr)
      call did('MPI_Send', 28, ierr)
      call MPI_WAIT(requests(1), status, ierr)
      call done('MPI_Wait', 1, ierr)
      call MPI_GET_COUNT(status, MPI_INTEGER, got, ierr)
      call say_int('status', (/ status(MPI_SOURCE), status(MPI_TAG),
     &             got, b(7, 1) /))
      call label('null', requests(1) .eq. MPI_REQUEST_NULL)

C     Waitall and Testall with arrays of statuses, and without.
      do k = 1, 4
        do i = 1, n
          call MPI_IRECV(b(1, i), 10, MPI_INTEGER, left, 10 + i,
     &                   MPI_COMM_WORLD, requests(i), ierr)
          call did('MPI_Irecv', 40, ierr)
          call MPI_ISEND(a, i, MPI_INTEGER, right, 10 + i,
     &                   MPI_COMM_WORLD, requests(n + i), ierr)
          call did('MPI_Isend', 4*i, ierr)
        end do
        if (k .eq. 1) then
          call MPI_WAITALL(2*n, requests, statuses, ierr)
          call done('MPI_Waitall', 2*n, ierr)
        else if (k .eq. 2) then
          call MPI_WAITALL(2*n, requests, MPI_STATUSES_IGNORE, ierr)
          call done('MPI_Waitall', 2*n, ierr)
        else if (k .eq. 3) then
          flag = .false.
          do while (.not. flag)
            call MPI_TESTALL(2*n, requests, flag, statuses, ierr)
            if (.not. flag) call poll()
          end do
          call done('MPI_Testall', 2*n, ierr)
        else
          do i = 1, 2*n
            call MPI_WAITANY(2*n, requests, ic, status, ierr)
            call done('MPI_Waitany', 1, ierr)
            statuses(:, ic) = status
          end do
        end if
        if (k .ne. 2) then
          do i = 1, n
            call MPI_GET_COUNT(statuses(1, i), MPI_INTEGER, got, ierr)
            call say_int('status', (/ statuses(MPI_SOURCE, i),
     &                   statuses(MPI_TAG, i), got /))
          end do
        end if
        call say_int('data', (/ b(1, 1), b(2, 2), b(3, 3), b(4, 4) /))
      end do
      call MPI_WAITSOME(2*n, requests, outc, ind, statuses, ierr)
      call done('MPI_Waitsome', 0, ierr)
      call label('undefined', outc .eq. MPI_UNDEFINED)

C     No request at all.
      call MPI_WAITALL(0, requests, MPI_STATUSES_IGNORE, ierr)
      call done('MPI_Waitall', 0, ierr)
      call MPI_TESTALL(0, requests, flag, statuses, ierr)
      call done('MPI_Testall', 0, ierr)
      call label('all', flag)
      call MPI_WAITANY(0, requests, ic, status, ierr)
      call done('MPI_Waitany', 0, ierr)
      call MPI_TESTSOME(0, requests, outc, ind, statuses, ierr)
      call done('MPI_Testsome', 0, ierr)
      call label('undefined', outc .eq. MPI_UNDEFINED)

C     Blocking exchange with wildcards and MPI_PROC_NULL.
      do i = 1, 5
        x(i) = me + i/8.0d0
        y(i) = -1
      end do
      call MPI_SENDRECV(x, 5, MPI_DOUBLE_PRECISION, right, 3, y, 5,
     &  MPI_DOUBLE_PRECISION, left, MPI_ANY_TAG,
     &  MPI_COMM_WORLD, status, ierr)
      call did('MPI_Sendrecv', 40, ierr)
      call did('MPI_Sendrecv_recv', 40, ierr)
      call say_real('exchanged', y)
      call say_int('from', (/ status(MPI_SOURCE), status(MPI_TAG) /))
      call MPI_SENDRECV_REPLACE(x, 5, MPI_DOUBLE_PRECISION, left, 4,
     &  right, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call did('MPI_Sendrecv_replace', 40, ierr)
      call did('MPI_Sendrecv_recv', 40, ierr)
      call say_real('replaced', x)
      call MPI_SEND(a, 1, MPI_INTEGER, MPI_PROC_NULL, 1,
     &              MPI_COMM_WORLD, ierr)
      call did('MPI_Send', 4, ierr)
      call MPI_RECV(a, 1, MPI_INTEGER, MPI_PROC_NULL, 1,
     &              MPI_COMM_WORLD, status, ierr)
      call did('MPI_Recv', 4, ierr)
      call label('from null', status(MPI_SOURCE) .eq. MPI_PROC_NULL)

C     Errors are returned in ierr.
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, MPI_ERRORS_RETURN,
     &                             ierr)
      call MPI_SEND(a, 1, MPI_INTEGER, np, 1, MPI_COMM_WORLD, ierr)
      call did('MPI_Send', 4, ierr)
      call MPI_ERROR_CLASS(ierr, ic, k)
      call label('bad rank', ic .eq. MPI_ERR_RANK)
      call MPI_ISEND(a, 4, MPI_INTEGER, right, 5, MPI_COMM_WORLD,
     &               requests(1), ierr)
      call did('MPI_Isend', 16, ierr)
      call MPI_RECV(b, 2, MPI_INTEGER, left, 5, MPI_COMM_WORLD, status,
     &              ierr)
      call did('MPI_Recv', 8, ierr)
      call MPI_ERROR_CLASS(ierr, ic, k)
      call label('truncated', ic .eq. MPI_ERR_TRUNCATE)
      call MPI_WAIT(requests(1), MPI_STATUS_IGNORE, ierr)
      call done('MPI_Wait', 1, ierr)

C     A probe, and the message it found.
      call MPI_ISEND(a, 6, MPI_INTEGER, right, 6, MPI_COMM_WORLD,
     &               requests(1), ierr)
      call did('MPI_Isend', 24, ierr)
      call MPI_PROBE(left, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
      call did('MPI_Probe', 1, ierr)
      call MPI_GET_COUNT(status, MPI_INTEGER, got, ierr)
      call say_int('found', (/ status(MPI_TAG), got /))
      call MPI_RECV(b, got, MPI_INTEGER, left, status(MPI_TAG),
     &              MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call did('MPI_Recv', 4*got, ierr)
      call MPI_WAIT(requests(1), MPI_STATUS_IGNORE, ierr)
      call done('MPI_Wait', 1, ierr)
      call finish(me, np)
      call MPI_FINALIZE(ierr)
      end
