! A halo of a periodic 2-D grid in Fortran: MPI_Neighbor_alltoallv and MPI_Ineighbor_allgather.
program around
  use mpi_f08
  implicit none
  type(MPI_Comm) :: grid
  type(MPI_Request) :: request
  integer :: n, me, dims(2), at(2), to(4), counts(4), i, k
  integer :: places(4)
  integer(8) :: tally(2)
  real(8) :: a(400), b(400)
  call MPI_Init()
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  dims = 0
  tally = 0
  a = 1
  call MPI_Dims_create(n, 2, dims)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.true., .true.], .false., grid)
  call MPI_Comm_rank(grid, me)
  call MPI_Cart_coords(grid, me, 2, at)
  do k = 1, 2
    call MPI_Cart_shift(grid, k - 1, 1, to(2 * k - 1), to(2 * k))
  end do
  counts = [10, 10, 20, 20]
  places = [0, 100, 200, 300]
  do i = 1, 3
    call MPI_Neighbor_alltoallv(a, counts, places, MPI_DOUBLE_PRECISION, b, counts, places, &
                                MPI_DOUBLE_PRECISION, grid)
    call MPI_Ineighbor_allgather(a, 7, MPI_DOUBLE_PRECISION, b, 7, MPI_DOUBLE_PRECISION, grid, &
                                 request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    do k = 1, 4
      tally = tally + [2_8, 8_8 * counts(k) + 56_8]
    end do
  end do
  print '(a, 5(1x, i0))', 'tally', me, tally, tally
  call MPI_Finalize()
end program around
