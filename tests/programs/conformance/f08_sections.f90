! `use mpi_f08` with array sections, described to MPI or copied by the compiler: blocking calls
! allow both (but not reductions: MPICH describes a section by a derived datatype). Nonblocking
! calls get sections only where MPI says that it takes them.
program f08_sections
  use mpi_f08
  use conform
  implicit none
  integer :: me, np, right, left, i, grid(8, 8), into(8, 8), line(8)
  double precision, allocatable :: field(:, :), halo(:, :)
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  type(MPI_Comm) :: w

  call MPI_Init()
  call did('MPI_Init', 0)
  w = MPI_COMM_WORLD
  call MPI_Comm_rank(w, me)
  call MPI_Comm_size(w, np)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  grid = reshape([(me * 64 + i, i=1, 64)], [8, 8])
  into = 0
  call MPI_Irecv(line, 8, MPI_INTEGER, left, 1, w, request)
  call did('MPI_Irecv', 32)
  call MPI_Send(grid(3, :), 8, MPI_INTEGER, right, 1, w)
  call did('MPI_Send', 32)
  call MPI_Wait(request, status)
  call done('MPI_Wait', 1)
  call say_int('row', line)
  call MPI_Sendrecv(grid(2:7:2, 4:6), 9, MPI_INTEGER, right, 2, into(1:5:2, 1:3), 9, MPI_INTEGER, &
                    left, 2, w, status)
  call did('MPI_Sendrecv', 36)
  call did('MPI_Sendrecv_recv', 36)
  call say_int('block', [into(1:5, 1), into(1:5, 3)])
  call MPI_Bcast(grid(8, 1:8:3), 3, MPI_INTEGER, np - 1, w)
  call did('MPI_Bcast', 12)
  call say_int('bcast', grid(8, :))
  allocate (field(0:9, 0:4), halo(10, 2))
  field = me + 0.125d0
  halo = 0
  call MPI_Sendrecv_replace(field(1:8, 1), 8, MPI_DOUBLE_PRECISION, right, 3, left, 3, w, &
                            MPI_STATUS_IGNORE)
  call did('MPI_Sendrecv_replace', 64)
  call did('MPI_Sendrecv_recv', 64)
  call say_real('field', field(:, 1))
  if (MPI_SUBARRAYS_SUPPORTED) then
    call MPI_Irecv(halo(2:10:3, 2), 3, MPI_DOUBLE_PRECISION, left, 4, w, request)
  else
    call MPI_Irecv(halo(2:4, 2), 3, MPI_DOUBLE_PRECISION, left, 4, w, request)
  end if
  call did('MPI_Irecv', 24)
  call MPI_Send(field(1, 0:4:2), 3, MPI_DOUBLE_PRECISION, right, 4, w)
  call did('MPI_Send', 24)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call done('MPI_Wait', 1)
  call MPI_F_sync_reg(halo)
  call say_real('halo', [sum(halo), halo(1, 2)])
  call MPI_Gather(field(0, 0:1), 2, MPI_DOUBLE_PRECISION, halo, 2, MPI_DOUBLE_PRECISION, 0, &
                  MPI_COMM_SELF)
  call did('MPI_Gather', 16)
  call say_real('gather', halo(1:2, 1))
  call finish(me, np)
  call MPI_Finalize()
end program
