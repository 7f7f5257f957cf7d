! Every family of calls from each Fortran binding, with the constants that bindings treat in their
! own way: MPI_IN_PLACE, MPI_BOTTOM, MPI_STATUS_IGNORE, logicals. BINDING is 0: mpif.h, 1: use mpi,
! 2: use mpi_f08. NEWER: the MPI has the calls of MPI 4.
#if BINDING == 2
#define COMM type(MPI_Comm)
#define TYPE type(MPI_Datatype)
#define REQUEST type(MPI_Request)
#define GROUP type(MPI_Group)
#define WINDOW type(MPI_Win)
#define HANDLE_OF_FILE type(MPI_File)
#define MESSAGE type(MPI_Message)
#define STATUS(name) type(MPI_Status) :: name
#define TAG(status) status%MPI_TAG
#else
#define COMM integer
#define TYPE integer
#define REQUEST integer
#define GROUP integer
#define WINDOW integer
#define HANDLE_OF_FILE integer
#define MESSAGE integer
#define STATUS(name) integer :: name(MPI_STATUS_SIZE)
#define TAG(status) status(MPI_TAG)
#endif
module binding
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
  integer :: me, np, right, left, ierr
  COMM :: w
contains
  subroutine finished(request, what)
    ! Waits for what a call has posted, and counts both.
    REQUEST, intent(inout) :: request
    character(len=*), intent(in) :: what
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call done('MPI_Wait', 1, ierr)
    call say(what)
  end subroutine
end module

subroutine messages()
  use binding
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: a(6), b(6), i, got, block(2)
  integer(kind=MPI_ADDRESS_KIND) :: where_(2)
  character :: space(4000)
  type(c_ptr) :: given
  logical :: flag
  REQUEST :: requests(4)
  TYPE :: both, types(2)
  MESSAGE :: message
  STATUS(status)
  a = [(100 * me + i, i=1, 6)]
  b = -1
  call MPI_Buffer_attach(space, size(space), ierr)
  call MPI_Irecv(b, 2, MPI_INTEGER, left, 1, w, requests(1), ierr)
  call did('MPI_Irecv', 8, ierr)
  call MPI_Irecv(b(3), 2, MPI_INTEGER, left, 2, w, requests(2), ierr)
  call did('MPI_Irecv', 8, ierr)
  call MPI_Irecv(b(5), 2, MPI_INTEGER, MPI_ANY_SOURCE, 3, w, requests(3), ierr)
  call did('MPI_Irecv', 8, ierr)
  call MPI_Barrier(w, ierr)
  call did('MPI_Barrier', 0, ierr)
  call MPI_Ibsend(a, 2, MPI_INTEGER, right, 1, w, requests(4), ierr)
  call did('MPI_Ibsend', 8, ierr)
  call finished(requests(4), 'buffered')
  call MPI_Issend(a(3), 2, MPI_INTEGER, right, 2, w, requests(4), ierr)
  call did('MPI_Issend', 8, ierr)
  call finished(requests(4), 'synchronous')
  call MPI_Irsend(a(5), 2, MPI_INTEGER, right, 3, w, requests(4), ierr)
  call did('MPI_Irsend', 8, ierr)
  call finished(requests(4), 'ready')
  do i = 1, 3
    call finished(requests(i), 'received')
  end do
  call say_int('modes', b)
#if BINDING == 2
  call MPI_Buffer_detach(given, got, ierr)
#else
  call MPI_Buffer_detach(space, got, ierr)
#endif
  call done('MPI_Buffer_detach', 0, ierr)
  call label('all of the buffer', got == size(space))

  ! Absolute addresses: two variables as one message from MPI_BOTTOM.
  call MPI_Get_address(a(1), where_(1), ierr)
  call MPI_Get_address(a(4), where_(2), ierr)
  block = [2, 3]
  types = [MPI_INTEGER, MPI_INTEGER]
  call MPI_Type_create_struct(2, block, where_, types, both, ierr)
  call MPI_Type_commit(both, ierr)
  call MPI_Irecv(b, 5, MPI_INTEGER, left, 4, w, requests(1), ierr)
  call did('MPI_Irecv', 20, ierr)
  call MPI_Send(MPI_BOTTOM, 1, both, right, 4, w, ierr)
  call did('MPI_Send', 20, ierr)
  call MPI_Wait(requests(1), status, ierr)
  call done('MPI_Wait', 1, ierr)
  call say_int('bottom', [b(1:5), TAG(status)])
  call MPI_Type_free(both, ierr)

  ! Probes whose answers are logicals.
  call MPI_Iprobe(MPI_PROC_NULL, 5, w, flag, MPI_STATUS_IGNORE, ierr)
  call did('MPI_Iprobe', 1, ierr)
  call label('nothing comes from nobody', flag)
  call MPI_Isend(a, 6, MPI_INTEGER, right, 6, w, requests(1), ierr)
  call did('MPI_Isend', 24, ierr)
  call MPI_Probe(left, 6, w, MPI_STATUS_IGNORE, ierr)
  call did('MPI_Probe', 1, ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Improbe(left, 6, w, flag, message, MPI_STATUS_IGNORE, ierr)
    if (.not. flag) call poll()
  end do
  call did('MPI_Improbe', 1, ierr)
  call MPI_Imrecv(b, 6, MPI_INTEGER, message, requests(2), ierr)
  call did('MPI_Imrecv', 24, ierr)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  call done('MPI_Waitall', 2, ierr)
  call say_int('matched', b)
end subroutine

subroutine collectives()
  use binding
  implicit none
  integer :: i, a(64), b(64), n(64), at(64), bytes(64), tri
  TYPE :: types(64)
  REQUEST :: r
  a = [(me + i, i=1, 64)]
  b = 0
  do i = 1, np
    n(i) = i
    at(i) = i * (i - 1) / 2
    bytes(i) = 4 * at(i)
    types(i) = MPI_INTEGER
  end do
  tri = np * (np + 1) / 2
  call MPI_Gather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 0, w, ierr)
  call did('MPI_Gather', 8, ierr)
  call MPI_Igather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 0, w, r, ierr)
  call did('MPI_Igather', 8, ierr)
  call finished(r, 'gather')
  call MPI_Gatherv(a, me + 1, MPI_INTEGER, b, n, at, MPI_INTEGER, 0, w, ierr)
  call did('MPI_Gatherv', 4 * (me + 1), ierr)
  call MPI_Igatherv(a, me + 1, MPI_INTEGER, b, n, at, MPI_INTEGER, 0, w, r, ierr)
  call did('MPI_Igatherv', 4 * (me + 1), ierr)
  call finished(r, 'gatherv')
  call say_int('gathered', b(1:tri))
  call MPI_Scatter(b, 2, MPI_INTEGER, a, 2, MPI_INTEGER, 0, w, ierr)
  call did('MPI_Scatter', 8, ierr)
  call MPI_Iscatter(b, 2, MPI_INTEGER, a, 2, MPI_INTEGER, 0, w, r, ierr)
  call did('MPI_Iscatter', 8, ierr)
  call finished(r, 'scatter')
  call MPI_Scatterv(b, n, at, MPI_INTEGER, a, me + 1, MPI_INTEGER, 0, w, ierr)
  call did('MPI_Scatterv', 4 * (me + 1), ierr)
  call MPI_Iscatterv(b, n, at, MPI_INTEGER, a, me + 1, MPI_INTEGER, 0, w, r, ierr)
  call did('MPI_Iscatterv', 4 * (me + 1), ierr)
  call finished(r, 'scatterv')
  call say_int('scattered', a(1:me + 1))
  call MPI_Allgather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, w, ierr)
  call did('MPI_Allgather', 8, ierr)
  call MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INTEGER, b, 2, MPI_INTEGER, w, r, ierr)
  call did('MPI_Iallgather', 8, ierr)
  call finished(r, 'allgather')
  call MPI_Allgatherv(a, me + 1, MPI_INTEGER, b, n, at, MPI_INTEGER, w, ierr)
  call did('MPI_Allgatherv', 4 * (me + 1), ierr)
  call MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, b, n, at, MPI_INTEGER, w, r, ierr)
  call did('MPI_Iallgatherv', 4 * (me + 1), ierr)
  call finished(r, 'allgatherv')
  call say_int('gathered', b(1:tri))
  call MPI_Alltoall(a, 3, MPI_INTEGER, b, 3, MPI_INTEGER, w, ierr)
  call did('MPI_Alltoall', 12 * np, ierr)
  call MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_INTEGER, b, 3, MPI_INTEGER, w, r, ierr)
  call did('MPI_Ialltoall', 12 * np, ierr)
  call finished(r, 'alltoall')
  n(1:np) = me + [(i, i=1, np)]
  at(1:np) = [(sum(n(1:i - 1)), i=1, np)]
  bytes(1:np) = 4 * at(1:np)
  tri = sum(n(1:np))
  call MPI_Alltoallv(a, n, at, MPI_INTEGER, b, n, at, MPI_INTEGER, w, ierr)
  call did('MPI_Alltoallv', 4 * tri, ierr)
  call MPI_Ialltoallv(MPI_IN_PLACE, n, at, MPI_INTEGER, b, n, at, MPI_INTEGER, w, r, ierr)
  call did('MPI_Ialltoallv', 4 * tri, ierr)
  call finished(r, 'alltoallv')
  call MPI_Alltoallw(a, n, bytes, types, b, n, bytes, types, w, ierr)
  call did('MPI_Alltoallw', 4 * tri, ierr)
  call MPI_Ialltoallw(MPI_IN_PLACE, n, bytes, types, b, n, bytes, types, w, r, ierr)
  call did('MPI_Ialltoallw', 4 * tri, ierr)
  call finished(r, 'alltoallw')
  call say_int('to all', b(1:tri))
  n(1:np) = [(i, i=1, np)]
  tri = np * (np + 1) / 2
  call MPI_Reduce_scatter(a, b, n, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Reduce_scatter', 4 * tri, ierr)
  call MPI_Ireduce_scatter(a, b, n, MPI_INTEGER, MPI_SUM, w, r, ierr)
  call did('MPI_Ireduce_scatter', 4 * tri, ierr)
  call finished(r, 'reduce_scatter')
  call MPI_Reduce_scatter_block(a, b, 2, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Reduce_scatter_block', 8 * np, ierr)
  call MPI_Ireduce_scatter_block(a, b, 2, MPI_INTEGER, MPI_SUM, w, r, ierr)
  call did('MPI_Ireduce_scatter_block', 8 * np, ierr)
  call finished(r, 'reduce_scatter_block')
  call say_int('scattered', b(1:2))
  call MPI_Bcast(a, 5, MPI_INTEGER, np - 1, w, ierr)
  call did('MPI_Bcast', 20, ierr)
  call MPI_Ibcast(a, 5, MPI_INTEGER, np - 1, w, r, ierr)
  call did('MPI_Ibcast', 20, ierr)
  call finished(r, 'bcast')
  call MPI_Reduce(a, b, 5, MPI_INTEGER, MPI_MAX, 0, w, ierr)
  call did('MPI_Reduce', 20, ierr)
  call MPI_Ireduce(a, b, 5, MPI_INTEGER, MPI_MAX, 0, w, r, ierr)
  call did('MPI_Ireduce', 20, ierr)
  call finished(r, 'reduce')
  call MPI_Allreduce(MPI_IN_PLACE, a, 5, MPI_INTEGER, MPI_MAX, w, ierr)
  call did('MPI_Allreduce', 20, ierr)
  call MPI_Iallreduce(MPI_IN_PLACE, a, 5, MPI_INTEGER, MPI_MAX, w, r, ierr)
  call did('MPI_Iallreduce', 20, ierr)
  call finished(r, 'allreduce')
  call MPI_Scan(a, b, 5, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Scan', 20, ierr)
  call MPI_Iscan(MPI_IN_PLACE, a, 5, MPI_INTEGER, MPI_SUM, w, r, ierr)
  call did('MPI_Iscan', 20, ierr)
  call finished(r, 'scan')
  call MPI_Exscan(a, b, 5, MPI_INTEGER, MPI_SUM, w, ierr)
  call did('MPI_Exscan', 20, ierr)
  call MPI_Iexscan(a, b, 5, MPI_INTEGER, MPI_SUM, w, r, ierr)
  call did('MPI_Iexscan', 20, ierr)
  call finished(r, 'exscan')
  call MPI_Ibarrier(w, r, ierr)
  call did('MPI_Ibarrier', 0, ierr)
  call finished(r, 'barrier')
  call say_int('sums', a(1:5))
end subroutine

subroutine communicators()
  use binding
  implicit none
  COMM :: c, d, row
  GROUP :: all, some
  REQUEST :: r
  integer :: dims(2), members(1), i, edges(64), degrees(64), one(1), sources(1)
  logical :: periods(2), keep(2)
  call MPI_Comm_dup(w, c, ierr)
  call did('MPI_Comm_dup', 0, ierr)
  call MPI_Comm_dup_with_info(c, MPI_INFO_NULL, d, ierr)
  call did('MPI_Comm_dup_with_info', 0, ierr)
  call MPI_Comm_disconnect(d, ierr)
  call did('MPI_Comm_disconnect', 0, ierr)
  call MPI_Comm_idup(c, d, r, ierr)
  call did('MPI_Comm_idup', 0, ierr)
  call finished(r, 'idup')
  call MPI_Barrier(d, ierr)
  call did('MPI_Barrier', 0, ierr)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Comm_split(c, mod(me, 2), -me, d, ierr)
  call did('MPI_Comm_split', 0, ierr)
  call MPI_Barrier(d, ierr)
  call did('MPI_Barrier', 0, ierr)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Comm_split_type(c, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, d, ierr)
  call did('MPI_Comm_split_type', 0, ierr)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Comm_group(c, all, ierr)
  members = [0]
  call MPI_Group_incl(all, 1, members, some, ierr)
  call MPI_Comm_create(c, some, d, ierr)
  call did('MPI_Comm_create', 0, ierr)
  if (me == 0) then
    call MPI_Comm_free(d, ierr)
    call did('MPI_Comm_free', 0, ierr)
    call MPI_Comm_create_group(c, some, 7, d, ierr)
    call did('MPI_Comm_create_group', 0, ierr)
    call MPI_Comm_free(d, ierr)
    call did('MPI_Comm_free', 0, ierr)
  end if
  call MPI_Group_free(some, ierr)
  call MPI_Group_free(all, ierr)
  dims = [np, 1]
  periods = [.true., .false.]
  keep = [.true., .false.]
  call MPI_Cart_create(c, 2, dims, periods, .false., d, ierr)
  call did('MPI_Cart_create', 0, ierr)
  call MPI_Cart_sub(d, keep, row, ierr)
  call did('MPI_Cart_sub', 0, ierr)
  call neighbours(row, 2)
  call MPI_Comm_free(row, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  degrees(1:np) = [(i, i=1, np)]
  edges(1:np) = [(mod(i, np), i=1, np)]
  call MPI_Graph_create(c, np, degrees, edges, .false., d, ierr)
  call did('MPI_Graph_create', 0, ierr)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  one = [1]
  sources = [me]
  members = [right]
  call MPI_Dist_graph_create(c, 1, sources, one, members, one, MPI_INFO_NULL, .false., d, ierr)
  call did('MPI_Dist_graph_create', 0, ierr)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  sources = [left]
  call MPI_Dist_graph_create_adjacent(c, 1, sources, one, 1, members, one, MPI_INFO_NULL, &
                                      .false., d, ierr)
  call did('MPI_Dist_graph_create_adjacent', 0, ierr)
  call neighbours(d, 1)
  call MPI_Comm_free(d, ierr)
  call did('MPI_Comm_free', 0, ierr)
  if (np > 1) then
    call MPI_Comm_split(c, mod(me, 2), me, row, ierr)
    call did('MPI_Comm_split', 0, ierr)
    call MPI_Intercomm_create(row, 0, c, 1 - mod(me, 2), 9, d, ierr)
    call did('MPI_Intercomm_create', 0, ierr)
    call MPI_Comm_free(row, ierr)
    call did('MPI_Comm_free', 0, ierr)
    call MPI_Intercomm_merge(d, mod(me, 2) == 1, row, ierr)
    call did('MPI_Intercomm_merge', 0, ierr)
    call MPI_Comm_free(row, ierr)
    call did('MPI_Comm_free', 0, ierr)
    call MPI_Comm_free(d, ierr)
    call did('MPI_Comm_free', 0, ierr)
  end if
  call MPI_Comm_free(c, ierr)
  call did('MPI_Comm_free', 0, ierr)
contains
  subroutine neighbours(c, k)
    ! Every neighbourhood collective on a communicator where each rank has k neighbours.
    COMM, intent(in) :: c
    integer, intent(in) :: k
    integer :: a(4), b(4), n(2), at(2), i
    integer(kind=MPI_ADDRESS_KIND) :: from(2)
    TYPE :: types(2)
    a = me + [1, 2, 3, 4]
    b = -1
    n = 2
    at = [0, 2]
    from = 4 * at
    types = [MPI_INTEGER, MPI_INTEGER]
    call MPI_Neighbor_allgather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, c, ierr)
    call did('MPI_Neighbor_allgather', 8 * k, ierr)
    call MPI_Neighbor_allgatherv(a, 2, MPI_INTEGER, b, n, at, MPI_INTEGER, c, ierr)
    call did('MPI_Neighbor_allgatherv', 8 * k, ierr)
    call say_int('around', b)
    call MPI_Neighbor_alltoall(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, c, ierr)
    call did('MPI_Neighbor_alltoall', 8 * k, ierr)
    call MPI_Neighbor_alltoallv(a, n, at, MPI_INTEGER, b, n, at, MPI_INTEGER, c, ierr)
    call did('MPI_Neighbor_alltoallv', 8 * k, ierr)
    if (k == 1) then ! mpi_f08 of MPICH 4 asks for the graph's neighbours, also on a grid
      call MPI_Neighbor_alltoallw(a, n, from, types, b, n, from, types, c, ierr)
      call did('MPI_Neighbor_alltoallw', 8 * k, ierr)
    end if
    call say_int('around', b)
    call MPI_Ineighbor_allgather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, c, r, ierr)
    call did('MPI_Ineighbor_allgather', 8 * k, ierr)
    call finished(r, 'allgather')
    call MPI_Ineighbor_allgatherv(a, 2, MPI_INTEGER, b, n, at, MPI_INTEGER, c, r, ierr)
    call did('MPI_Ineighbor_allgatherv', 8 * k, ierr)
    call finished(r, 'allgatherv')
    call MPI_Ineighbor_alltoall(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, c, r, ierr)
    call did('MPI_Ineighbor_alltoall', 8 * k, ierr)
    call finished(r, 'alltoall')
    call MPI_Ineighbor_alltoallv(a, n, at, MPI_INTEGER, b, n, at, MPI_INTEGER, c, r, ierr)
    call did('MPI_Ineighbor_alltoallv', 8 * k, ierr)
    call finished(r, 'alltoallv')
    if (k == 1) then
      call MPI_Ineighbor_alltoallw(a, n, from, types, b, n, from, types, c, r, ierr)
      call did('MPI_Ineighbor_alltoallw', 8 * k, ierr)
      call finished(r, 'alltoallw')
    end if
    call say_int('around', b)
  end subroutine
end subroutine

subroutine windows()
  use binding
  implicit none
  integer, target, save :: memory(8)
  integer :: a(4), b(4), members(1), zero(1)
  integer(kind=MPI_ADDRESS_KIND) :: at
  logical :: flag
  WINDOW :: win
  GROUP :: all, to_, from
  REQUEST :: r
  a = me + [1, 2, 3, 4]
  b = -1
  memory = 0
  zero = 0
  at = 32
  call MPI_Win_create(memory, at, 4, MPI_INFO_NULL, w, win, ierr)
  call did('MPI_Win_create', 0, ierr)
  call MPI_Win_fence(0, win, ierr)
  call did('MPI_Win_fence', 0, ierr)
  at = 0
  call MPI_Put(a, 4, MPI_INTEGER, right, at, 4, MPI_INTEGER, win, ierr)
  call did('MPI_Put', 16, ierr)
  call MPI_Win_fence(0, win, ierr)
  call did('MPI_Win_fence', 0, ierr)
  call MPI_Get(b, 2, MPI_INTEGER, left, at, 2, MPI_INTEGER, win, ierr)
  call did('MPI_Get', 8, ierr)
  at = 4
  call MPI_Accumulate(a, 3, MPI_INTEGER, 0, at, 3, MPI_INTEGER, MPI_SUM, win, ierr)
  call did('MPI_Accumulate', 12, ierr)
  call MPI_Win_fence(0, win, ierr)
  call did('MPI_Win_fence', 0, ierr)
  call say_int('fence', [b(1:2), memory])
  call MPI_Comm_group(w, all, ierr)
  members = [right]
  call MPI_Group_incl(all, 1, members, to_, ierr)
  members = [left]
  call MPI_Group_incl(all, 1, members, from, ierr)
  call MPI_Win_post(from, 0, win, ierr)
  call did('MPI_Win_post', 0, ierr)
  call MPI_Win_start(to_, 0, win, ierr)
  call did('MPI_Win_start', 0, ierr)
  at = 0
  call MPI_Put(a, 1, MPI_INTEGER, right, at, 1, MPI_INTEGER, win, ierr)
  call did('MPI_Put', 4, ierr)
  call MPI_Win_complete(win, ierr)
  call did('MPI_Win_complete', 0, ierr)
  call MPI_Win_wait(win, ierr)
  call did('MPI_Win_wait', 0, ierr)
  call MPI_Win_post(from, 0, win, ierr)
  call did('MPI_Win_post', 0, ierr)
  call MPI_Win_start(to_, 0, win, ierr)
  call did('MPI_Win_start', 0, ierr)
  call MPI_Win_complete(win, ierr)
  call did('MPI_Win_complete', 0, ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Win_test(win, flag, ierr)
    if (.not. flag) call poll()
  end do
  call did('MPI_Win_test', 0, ierr)
  call MPI_Group_free(to_, ierr)
  call MPI_Group_free(from, ierr)
  call MPI_Group_free(all, ierr)
  call MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win, ierr)
  call did('MPI_Win_lock', 0, ierr)
  at = 7
  call MPI_Rput(a, 1, MPI_INTEGER, right, at, 1, MPI_INTEGER, win, r, ierr)
  call did('MPI_Rput', 4, ierr)
  call finished(r, 'rput')
  call MPI_Win_flush(right, win, ierr)
  call did('MPI_Win_flush', 0, ierr)
  call MPI_Rget(b, 1, MPI_INTEGER, right, at, 1, MPI_INTEGER, win, r, ierr)
  call did('MPI_Rget', 4, ierr)
  call finished(r, 'rget')
  call MPI_Win_flush_local(right, win, ierr)
  call did('MPI_Win_flush_local', 0, ierr)
  call MPI_Win_unlock(right, win, ierr)
  call did('MPI_Win_unlock', 0, ierr)
  call say_int('got back', b(1:1))
  call MPI_Win_lock_all(0, win, ierr)
  call did('MPI_Win_lock_all', 0, ierr)
  at = 6
  call MPI_Fetch_and_op(a, b, MPI_INTEGER, 0, at, MPI_SUM, win, ierr)
  call did('MPI_Fetch_and_op', 4, ierr)
  call MPI_Win_flush_all(win, ierr)
  call did('MPI_Win_flush_all', 0, ierr)
  call MPI_Get_accumulate(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, 0, at, 1, MPI_INTEGER, MPI_SUM, &
                          win, ierr)
  call did('MPI_Get_accumulate', 4, ierr)
  call MPI_Win_flush_local_all(win, ierr)
  call did('MPI_Win_flush_local_all', 0, ierr)
  call MPI_Raccumulate(a, 1, MPI_INTEGER, 0, at, 1, MPI_INTEGER, MPI_SUM, win, r, ierr)
  call did('MPI_Raccumulate', 4, ierr)
  call finished(r, 'raccumulate')
  call MPI_Rget_accumulate(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, 0, at, 1, MPI_INTEGER, MPI_SUM, &
                           win, r, ierr)
  call did('MPI_Rget_accumulate', 4, ierr)
  call finished(r, 'rget_accumulate')
  call MPI_Compare_and_swap(a, zero, b, MPI_INTEGER, right, at, win, ierr)
  call did('MPI_Compare_and_swap', 4, ierr)
  call MPI_Win_sync(win, ierr)
  call did('MPI_Win_sync', 0, ierr)
  call MPI_Win_unlock_all(win, ierr)
  call did('MPI_Win_unlock_all', 0, ierr)
  call MPI_Win_free(win, ierr)
  call did('MPI_Win_free', 0, ierr)
end subroutine

subroutine files()
  use binding
  implicit none
  integer :: a(4), b(4)
  integer(kind=MPI_OFFSET_KIND) :: at
  HANDLE_OF_FILE :: f
  REQUEST :: r
  STATUS(status)
  a = 4 * me + [0, 1, 2, 3]
  b = -1
  at = 0
  call MPI_File_open(w, 'families.bin', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, f, ierr)
  call did('MPI_File_open', 0, ierr)
  call MPI_File_set_size(f, at, ierr)
  call did('MPI_File_set_size', 0, ierr)
  at = 16 * me
  call MPI_File_write_at(f, at, a, 4, MPI_INTEGER, status, ierr)
  call did('MPI_File_write_at', 16, ierr)
  call MPI_File_write_at_all(f, at, a, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call did('MPI_File_write_at_all', 16, ierr)
  call MPI_File_iwrite_at(f, at, a, 4, MPI_INTEGER, r, ierr)
  call did('MPI_File_iwrite_at', 16, ierr)
  call finished(r, 'iwrite_at')
  call MPI_File_sync(f, ierr)
  call did('MPI_File_sync', 0, ierr)
  call MPI_Barrier(w, ierr)
  call did('MPI_Barrier', 0, ierr)
  at = 16 * right
  call MPI_File_read_at(f, at, b, 4, MPI_INTEGER, status, ierr)
  call did('MPI_File_read_at', 16, ierr)
  call MPI_File_read_at_all(f, at, b, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call did('MPI_File_read_at_all', 16, ierr)
  call MPI_File_iread_at(f, at, b, 4, MPI_INTEGER, r, ierr)
  call did('MPI_File_iread_at', 16, ierr)
  call finished(r, 'iread_at')
  call say_int('at', b)
  at = 16 * me
  call MPI_File_set_view(f, at, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, ierr)
  call did('MPI_File_set_view', 0, ierr)
  call MPI_File_write(f, a, 2, MPI_INTEGER, status, ierr)
  call did('MPI_File_write', 8, ierr)
  call MPI_File_write_all(f, a(3), 2, MPI_INTEGER, status, ierr)
  call did('MPI_File_write_all', 8, ierr)
  at = 0
  call MPI_File_seek(f, at, MPI_SEEK_SET, ierr)
  call MPI_File_read(f, b, 1, MPI_INTEGER, status, ierr)
  call did('MPI_File_read', 4, ierr)
  call MPI_File_read_all(f, b(2), 1, MPI_INTEGER, status, ierr)
  call did('MPI_File_read_all', 4, ierr)
  call MPI_File_iread(f, b(3), 1, MPI_INTEGER, r, ierr)
  call did('MPI_File_iread', 4, ierr)
  call finished(r, 'iread')
  call MPI_File_write_all_begin(f, a, 1, MPI_INTEGER, ierr)
  call did('MPI_File_write_all_begin', 4, ierr)
  call MPI_File_write_all_end(f, a, status, ierr)
  call did('MPI_File_write_all_end', 0, ierr)
  call say_int('view', b)
  call MPI_File_close(f, ierr)
  call did('MPI_File_close', 0, ierr)
end subroutine

#ifdef NEWER
subroutine newer()
  ! Of MPI 4: persistent collectives and partitioned messages.
  use binding
  implicit none
  integer :: a(4), b(4), i
  REQUEST :: r, s
  a = me + [1, 2, 3, 4]
  b = -1
  call MPI_Allreduce_init(a, b, 4, MPI_INTEGER, MPI_SUM, w, MPI_INFO_NULL, r, ierr)
  call MPI_Bcast_init(a, 4, MPI_INTEGER, 0, w, MPI_INFO_NULL, s, ierr)
  do i = 1, 3
    call MPI_Start(r, ierr)
    call did('MPI_Allreduce_init', 16, ierr)
    call MPI_Wait(r, MPI_STATUS_IGNORE, ierr)
    call done('MPI_Wait', 1, ierr)
    call MPI_Start(s, ierr)
    call did('MPI_Bcast_init', 16, ierr)
    call MPI_Wait(s, MPI_STATUS_IGNORE, ierr)
    call done('MPI_Wait', 1, ierr)
  end do
  call say_int('persistent', b)
  call MPI_Request_free(r, ierr)
  call MPI_Request_free(s, ierr)
end subroutine
#endif

program families
  use binding
  implicit none
  call MPI_Init(ierr)
  call did('MPI_Init', 0, ierr)
  w = MPI_COMM_WORLD
  call MPI_Comm_rank(w, me, ierr)
  call MPI_Comm_size(w, np, ierr)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  call messages()
  call collectives()
  call communicators()
  call windows()
  call files()
#ifdef NEWER
  call newer()
#endif
  call finish(me, np)
  call MPI_Finalize(ierr)
end program
