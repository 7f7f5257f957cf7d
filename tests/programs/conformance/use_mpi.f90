! `use mpi`: all modes of sending, persistent requests, derived types, communicators.
program all_modes
  use mpi
  use conform
  implicit none
  integer :: ierr, me, np, right, left, i, turn, column, got, cart, row, flag_size
  integer :: status(MPI_STATUS_SIZE), requests(4), grid(6, 5), into(6, 5), other(6), dims(2), sub(2)
  character :: space(2000)
  logical :: flag, periods(2), keep(2)

  call MPI_Init_thread(MPI_THREAD_FUNNELED, flag_size, ierr)
  call did('MPI_Init', 0, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, np, ierr)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  call MPI_Buffer_attach(space, size(space), ierr)
  into = 0
  grid = reshape([(me * 100 + i, i=1, 30)], [6, 5])

  do i = 1, 4
    call MPI_Irecv(into(1, i), 6, MPI_INTEGER, left, i, MPI_COMM_WORLD, requests(i), ierr)
    call did('MPI_Irecv', 24, ierr)
  end do
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call did('MPI_Barrier', 0, ierr)
  call MPI_Ssend(grid(1, 1), 6, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierr)
  call did('MPI_Ssend', 24, ierr)
  call MPI_Rsend(grid(1, 2), 6, MPI_INTEGER, right, 2, MPI_COMM_WORLD, ierr)
  call did('MPI_Rsend', 24, ierr)
  call MPI_Bsend(grid(1, 3), 6, MPI_INTEGER, right, 3, MPI_COMM_WORLD, ierr)
  call did('MPI_Bsend', 24, ierr)
  call MPI_Send(grid(1, 4), 6, MPI_INTEGER, right, 4, MPI_COMM_WORLD, ierr)
  call did('MPI_Send', 24, ierr)
  do i = 1, 4
    flag = .false.
    do while (.not. flag)
      call MPI_Test(requests(i), flag, status, ierr)
      if (.not. flag) call poll()
    end do
    call done('MPI_Test', 1, ierr)
    call say_int('mode', [status(MPI_SOURCE), status(MPI_TAG), into(6, i)])
  end do

  ! Persistent requests on columns and rows of an array.
  call MPI_Type_vector(5, 1, 6, MPI_INTEGER, row, ierr)
  call MPI_Type_commit(row, ierr)
  call MPI_Type_contiguous(6, MPI_INTEGER, column, ierr)
  call MPI_Type_commit(column, ierr)
  call MPI_Recv_init(into(2, 1), 1, row, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Recv_init(other, 1, column, left, 8, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Send_init(grid(3, 1), 1, row, right, 7, MPI_COMM_WORLD, requests(3), ierr)
  call MPI_Ssend_init(grid(1, 1), 1, column, right, 8, MPI_COMM_WORLD, requests(4), ierr)
  do turn = 1, 3
    grid = grid + 1
    call MPI_Startall(4, requests, ierr)
    call did('MPI_Recv_init', 20, ierr)
    call did('MPI_Recv_init', 24, ierr)
    call did('MPI_Send_init', 20, ierr)
    call did('MPI_Ssend_init', 24, ierr)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
    call done('MPI_Waitall', 4, ierr)
    call say_int('row', [into(2, :), other])
  end do
  call MPI_Start(requests(2), ierr)
  call did('MPI_Recv_init', 24, ierr)
  call MPI_Start(requests(4), ierr)
  call did('MPI_Ssend_init', 24, ierr)
  call MPI_Wait(requests(2), status, ierr)
  call done('MPI_Wait', 1, ierr)
  call MPI_Wait(requests(4), MPI_STATUS_IGNORE, ierr)
  call done('MPI_Wait', 1, ierr)
  call MPI_Get_count(status, column, got, ierr)
  call say_int('started alone', [status(MPI_SOURCE), status(MPI_TAG), got])
  do i = 1, 4
    call MPI_Request_free(requests(i), ierr)
  end do
  call MPI_Type_free(row, ierr)
  call MPI_Type_free(column, ierr)

  dims = 0
  call MPI_Dims_create(np, 2, dims, ierr)
  periods = [.true., .false.]
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .false., cart, ierr)
  call did('MPI_Cart_create', 0, ierr)
  call MPI_Cart_coords(cart, me, 2, sub, ierr)
  call say_int('grid', [dims, sub])
  keep = [.true., .false.]
  call MPI_Cart_sub(cart, keep, row, ierr)
  call did('MPI_Cart_sub', 0, ierr)
  call MPI_Allreduce(me, got, 1, MPI_INTEGER, MPI_SUM, row, ierr)
  call did('MPI_Allreduce', 4, ierr)
  call say_int('column of the grid', [got])
  call MPI_Comm_free(row, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Comm_dup(cart, row, ierr)
  call did('MPI_Comm_dup', 0, ierr)
  call MPI_Comm_free(cart, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Cart_shift(row, 1, 1, left, right, ierr)
  got = -1
  call MPI_Sendrecv(me, 1, MPI_INTEGER, right, 1, got, 1, MPI_INTEGER, left, 1, row, status, ierr)
  call did('MPI_Sendrecv', 4, ierr)
  call did('MPI_Sendrecv_recv', 4, ierr)
  call say_int('open end', [got])
  call MPI_Comm_free(row, ierr)
  call did('MPI_Comm_free', 0, ierr)
  call MPI_Buffer_detach(space, i, ierr)
  call done('MPI_Buffer_detach', 0, ierr)
  call finish(me, np)
  call MPI_Finalize(ierr)
end program
