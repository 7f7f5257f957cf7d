! A program under test counts its own MPI calls, next to each call, and notes what it saw; the
! file it writes is that of conform.h. It does not use MPI itself, so that it fits every binding.
module conform
  implicit none
  private
  public :: did, done, poll, say, say_int, say_real, finish, label
  integer, parameter :: max_ops = 256, max_lines = 2000
  character(len=40) :: ops(max_ops)
  integer(kind=8) :: events(max_ops) = 0, bytes_of(max_ops) = 0
  character(len=200) :: lines(max_lines)
  integer :: n_ops = 0, n_lines = 0
  integer(kind=8) :: polls = 0
contains
  subroutine did(op, bytes, ierr)
    ! A call that returned an error is no event. bytes < 0: not compared.
    character(len=*), intent(in) :: op
    integer, intent(in) :: bytes
    integer, intent(in), optional :: ierr
    integer :: i
    if (present(ierr)) then
      if (ierr /= 0) return
    end if
    do i = 1, n_ops
      if (ops(i) == op) exit
    end do
    if (i > n_ops) then
      n_ops = i
      ops(i) = op
    end if
    events(i) = events(i) + 1
    if (bytes < 0 .or. bytes_of(i) < 0) then
      bytes_of(i) = -1
    else
      bytes_of(i) = bytes_of(i) + bytes
    end if
  end subroutine

  subroutine done(op, n, ierr)
    ! A completion call: n is how many requests it completed.
    character(len=*), intent(in) :: op
    integer, intent(in) :: n
    integer, intent(in), optional :: ierr
    call did(op, n, ierr)
  end subroutine

  subroutine poll()
    polls = polls + 1
  end subroutine

  subroutine say(text)
    character(len=*), intent(in) :: text
    n_lines = n_lines + 1
    lines(n_lines) = text
  end subroutine

  subroutine say_int(text, values)
    character(len=*), intent(in) :: text
    integer, intent(in) :: values(:)
    character(len=200) :: line
    write (line, '(a,*(1x,i0))') text, values
    call say(line)
  end subroutine

  subroutine say_real(text, values)
    character(len=*), intent(in) :: text
    double precision, intent(in) :: values(:)
    character(len=200) :: line
    write (line, '(a,*(1x,f0.4))') text, values
    call say(line)
  end subroutine

  subroutine label(text, value)
    character(len=*), intent(in) :: text
    logical, intent(in) :: value
    call say_int(text, [merge(1, 0, value)])
  end subroutine

  subroutine finish(rank, np)
    ! To be called right before MPI_Finalize, which it counts.
    integer, intent(in) :: rank, np
    character(len=40) :: name, number
    integer :: i, unit
    call did('MPI_Finalize', 0)
    write (name, '(a,i6.6,a)') 'output-', rank, '.txt'
    open (newunit=unit, file=name, action='write', recl=8000)
    write (unit, '(a)', advance='no') 'counts'
    do i = 1, n_ops
      write (number, '(i0)') bytes_of(i)
      if (bytes_of(i) < 0) number = '-'
      write (unit, '(1x,2a,i0,2a)', advance='no') trim(ops(i)), '=', events(i), '/', trim(number)
    end do
    write (unit, '(/,a,1x,i0)') 'polls', polls
    do i = 1, n_lines
      write (unit, '(a)') trim(lines(i))
    end do
    close (unit)
    write (*, '(a,i0,a,i0,a,i0)') 'rank ', rank, ' of ', np, ': ', n_lines
    flush (6)
  end subroutine
end module
