/* What a small profiling library does: wrappers that count and call PMPI. */
#include <mpi.h>

static long seen;

int MPI_Send(const void *buf, int n, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    seen++;
    return PMPI_Send(buf, n, type, dest, tag, comm);
}

int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    seen += 100;
    return PMPI_Allreduce(in, out, n, type, op, comm);
}

long wrapped_calls(void) { return seen; }
