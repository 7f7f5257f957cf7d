! `use mpi_f08`: persistent requests, freed requests, one-sided calls.
program f08_persistent
  use mpi_f08
  use conform
  implicit none
  integer :: me, np, right, left, i, turn, a(6), b(6), got
  integer(kind=MPI_ADDRESS_KIND) :: bytes, zero
  type(MPI_Request) :: requests(2), request
  type(MPI_Status) :: statuses(2)
  type(MPI_Win) :: win
  type(MPI_Comm) :: w
  logical :: flag
  integer, asynchronous :: memory(4)

  call MPI_Init()
  call did('MPI_Init', 0)
  w = MPI_COMM_WORLD
  call MPI_Comm_rank(w, me)
  call MPI_Comm_size(w, np)
  right = mod(me + 1, np)
  left = mod(me + np - 1, np)
  call MPI_Recv_init(b, 6, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, w, requests(1))
  call MPI_Send_init(a, 6, MPI_INTEGER, right, 3, w, requests(2))
  do turn = 1, 4
    a = [(me * 100 + turn * 10 + i, i=1, 6)]
    call MPI_Startall(2, requests)
    call did('MPI_Recv_init', 24)
    call did('MPI_Send_init', 24)
    if (turn == 2) then
      flag = .false.
      do while (.not. flag)
        call MPI_Testall(2, requests, flag, statuses)
        if (.not. flag) call poll()
      end do
      call done('MPI_Testall', 2)
    else
      call MPI_Waitall(2, requests, statuses)
      call done('MPI_Waitall', 2)
    end if
    call MPI_Get_count(statuses(1), MPI_INTEGER, got)
    call say_int('turn', [statuses(1)%MPI_SOURCE, statuses(1)%MPI_TAG, got, b])
    call MPI_Barrier(w)
    call did('MPI_Barrier', 0)
  end do
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))
  call label('null', requests(1) == MPI_REQUEST_NULL)
  call MPI_Isend(a, 6, MPI_INTEGER, right, 4, w, request)
  call did('MPI_Isend', 24)
  call MPI_Request_free(request)
  call MPI_Recv(b, 6, MPI_INTEGER, left, 4, w, MPI_STATUS_IGNORE)
  call did('MPI_Recv', 24)
  call say_int('freed', b)

  if (np > 1) then ! Open MPI 4 may have no windows for one rank
    memory = me
    bytes = 16
    zero = 0
    call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, w, win)
    call did('MPI_Win_create', -1)
    call MPI_Win_fence(0, win)
    call did('MPI_Win_fence', -1)
    call MPI_Put(a, 2, MPI_INTEGER, right, zero, 2, MPI_INTEGER, win)
    call did('MPI_Put', -1)
    call MPI_Win_fence(0, win)
    call did('MPI_Win_fence', -1)
    call say_int('memory', memory)
    call MPI_Win_free(win)
    call did('MPI_Win_free', -1)
  end if
  call finish(me, np)
  call MPI_Finalize()
end program
