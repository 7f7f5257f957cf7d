C     Collectives through mpif.h: MPI_IN_PLACE, MPI_BOTTOM, a user-defined operation, v variants.
      subroutine addup(in, inout, n, kind)
      integer n, kind, i
      integer in(n), inout(n)
      do i = 1, n
        inout(i) = in(i) + inout(i)
      end do
      end

      program collectives
      use conform
      implicit none
      include 'mpif.h'
      integer ierr, me, np, i, op, kind, req, comm, size, tri
      integer a(4), b(400), c(400), n(100), at(100)
      integer lengths(1)
      integer(kind=MPI_ADDRESS_KIND) places(1)
      external addup

      call MPI_INIT(ierr)
      call did('MPI_Init', 0, ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, me, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, np, ierr)
      tri = 0
      do i = 1, np
        n(i) = i
        at(i) = tri
        tri = tri + i
      end do
      a = (/ me, me + 1, me + 2, me*me /)
      b = 0
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call did('MPI_Barrier', 0, ierr)
      call MPI_ALLREDUCE(MPI_IN_PLACE, a, 4, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call did('MPI_Allreduce', 16, ierr)
      call say_int('allreduce', a)
      if (me .eq. 0) then
        call MPI_REDUCE(MPI_IN_PLACE, a, 4, MPI_INTEGER, MPI_MAX, 0,
     &                  MPI_COMM_WORLD, ierr)
      else
        call MPI_REDUCE(a, b, 4, MPI_INTEGER, MPI_MAX, 0,
     &                  MPI_COMM_WORLD, ierr)
      end if
      call did('MPI_Reduce', 16, ierr)
      call say_int('reduce', a)
      b = -1
      b(2*me+1:2*me+2) = me
      call MPI_ALLGATHER(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 2,
     &                   MPI_INTEGER, MPI_COMM_WORLD, ierr)
      call did('MPI_Allgather', 8, ierr)
      call say_int('allgather', b(1:2*np))
      b = me
      call MPI_ALLGATHERV(b, me + 1, MPI_INTEGER, c, n, at,
     &                    MPI_INTEGER, MPI_COMM_WORLD, ierr)
      call did('MPI_Allgatherv', 4*(me + 1), ierr)
      call say_int('allgatherv', c(1:tri))
      if (me .eq. 0) then
        call MPI_GATHERV(MPI_IN_PLACE, 1, MPI_INTEGER, c, n, at,
     &                   MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      else
        call MPI_GATHERV(b, me + 1, MPI_INTEGER, c, n, at,
     &                   MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      end if
      call did('MPI_Gatherv', 4*(me + 1), ierr)
      if (me .eq. 0) then
        call MPI_SCATTERV(c, n, at, MPI_INTEGER, MPI_IN_PLACE, 1,
     &                    MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      else
        call MPI_SCATTERV(c, n, at, MPI_INTEGER, b, me + 1,
     &                    MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      end if
      call did('MPI_Scatterv', 4*(me + 1), ierr)
      call say_int('scatterv', b(1:me+1))
      call MPI_ALLTOALL(c, 1, MPI_INTEGER, b, 1, MPI_INTEGER,
     &                  MPI_COMM_WORLD, ierr)
      call did('MPI_Alltoall', 4*np, ierr)
      call say_int('alltoall', b(1:np))
      call MPI_OP_CREATE(addup, .true., op, ierr)
      call MPI_ALLREDUCE(a, b, 4, MPI_INTEGER, op, MPI_COMM_WORLD,
     &                   ierr)
      call did('MPI_Allreduce', 16, ierr)
      call say_int('own operation', b(1:4))
      call MPI_OP_FREE(op, ierr)
      call MPI_SCAN(me, i, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD,
     &              ierr)
      call did('MPI_Scan', 4, ierr)
      call say_int('scan', (/ i /))

C     MPI_BOTTOM with an absolute address.
      call MPI_GET_ADDRESS(a, places(1), ierr)
      lengths(1) = 4
      call MPI_TYPE_CREATE_HINDEXED(1, lengths, places, MPI_INTEGER,
     &                              kind, ierr)
      call MPI_TYPE_COMMIT(kind, ierr)
      a = a + me
      call MPI_BCAST(MPI_BOTTOM, 1, kind, np - 1, MPI_COMM_WORLD, ierr)
      call did('MPI_Bcast', 16, ierr)
      call say_int('bottom', a)
      call MPI_SENDRECV(MPI_BOTTOM, 1, kind, mod(me + 1, np), 1, b, 4,
     &  MPI_INTEGER, mod(me + np - 1, np), 1, MPI_COMM_WORLD,
     &  MPI_STATUS_IGNORE, ierr)
      call did('MPI_Sendrecv', 16, ierr)
      call did('MPI_Sendrecv_recv', 16, ierr)
      call say_int('bottom', b(1:4))
      call MPI_TYPE_FREE(kind, ierr)

      call MPI_IALLREDUCE(MPI_IN_PLACE, a, 4, MPI_INTEGER, MPI_MIN,
     &                    MPI_COMM_WORLD, req, ierr)
      call did('MPI_Iallreduce', 16, ierr)
      call MPI_WAIT(req, MPI_STATUS_IGNORE, ierr)
      call done('MPI_Wait', 1, ierr)
      call say_int('iallreduce', a)
      call MPI_COMM_SPLIT(MPI_COMM_WORLD, mod(me, 2), me, comm, ierr)
      call did('MPI_Comm_split', 0, ierr)
      call MPI_COMM_SIZE(comm, size, ierr)
      call MPI_BCAST(a, 4, MPI_INTEGER, size - 1, comm, ierr)
      call did('MPI_Bcast', 16, ierr)
      call MPI_COMM_FREE(comm, ierr)
      call did('MPI_Comm_free', 0, ierr)
      call say_int('half', a)
      call finish(me, np)
      call MPI_FINALIZE(ierr)
      end
