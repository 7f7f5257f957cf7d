! A master that probes for whoever has a result, receives as many numbers as there are, and sends the
! next piece in two messages; the pieces get shorter with more workers. Argument: pieces per worker.
program probing
    use mpi
    implicit none
    integer :: rank, ranks, ierr, each
    character(len=16) :: word
    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    call get_command_argument(1, word)
    read (word, *) each
    if (rank == 0) then
        call serve(each * (ranks - 1))
    else
        call work()
    end if
    call MPI_Finalize(ierr)
contains
    subroutine serve(pieces)
        integer, intent(in) :: pieces
        integer :: status(MPI_STATUS_SIZE), left, next, count, head(2)
        double precision :: block(256)
        left = ranks - 1
        next = 0
        block = 1.0d0
        do while (left > 0)
            call MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, status, ierr)
            call MPI_Get_count(status, MPI_DOUBLE_PRECISION, count, ierr)
            call MPI_Recv(block, count, MPI_DOUBLE_PRECISION, status(MPI_SOURCE), 1, &
                          MPI_COMM_WORLD, status, ierr)
            head = [next, merge(1, 0, next < pieces)]
            call MPI_Send(head, 2, MPI_INTEGER, status(MPI_SOURCE), 2, MPI_COMM_WORLD, ierr)
            if (head(2) == 1) then
                call MPI_Send(block, 256, MPI_DOUBLE_PRECISION, status(MPI_SOURCE), 3, &
                              MPI_COMM_WORLD, ierr)
                next = next + 1
            else
                left = left - 1
            end if
        end do
    end subroutine

    subroutine work()
        integer :: status(MPI_STATUS_SIZE), head(2), k
        double precision :: block(256)
        block = 0.5d0
        do
            call MPI_Send(block, 16, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_WORLD, ierr)
            call MPI_Recv(head, 2, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, status, ierr)
            if (head(2) == 0) return
            call MPI_Recv(block, 256, MPI_DOUBLE_PRECISION, 0, 3, MPI_COMM_WORLD, status, ierr)
            do k = 1, (3000 + mod(head(1) * 37, 1000)) / (ranks - 1)
                block = sqrt(block + 1.0d0 / k)
            end do
        end do
    end subroutine
end program
