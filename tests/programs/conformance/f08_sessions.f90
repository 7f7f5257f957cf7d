! `use mpi_f08`: a session instead of MPI_Init.
program f08_sessions
  use mpi_f08
  use conform
  implicit none
  type(MPI_Session) :: session
  type(MPI_Group) :: group
  type(MPI_Comm) :: w
  integer :: me, np, got, i
  call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session)
  call did('MPI_Init', 0)
  call MPI_Group_from_session_pset(session, 'mpi://WORLD', group)
  call MPI_Comm_create_from_group(group, 'conformance', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, w)
  call did('MPI_Comm_create_from_group', 0)
  call MPI_Group_free(group)
  call MPI_Comm_rank(w, me)
  call MPI_Comm_size(w, np)
  do i = 1, 4
    call MPI_Sendrecv(me, 1, MPI_INTEGER, mod(me + 1, np), 1, got, 1, MPI_INTEGER, &
                      mod(me + np - 1, np), 1, w, MPI_STATUS_IGNORE)
    call did('MPI_Sendrecv', 4)
    call did('MPI_Sendrecv_recv', 4)
    call say_int('from', [got])
  end do
  call MPI_Allreduce(me, got, 1, MPI_INTEGER, MPI_SUM, w)
  call did('MPI_Allreduce', 4)
  call say_int('sum', [got])
  call MPI_Comm_free(w)
  call did('MPI_Comm_free', 0)
  call finish(me, np)
  call MPI_Session_finalize(session)
end program
