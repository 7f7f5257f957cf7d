/* Collective calls, blocking and not, with bytes as a scaled trace counts them: what this process
 * sends (Scatter: receives; Bcast: the buffer; Reduce_scatter_block: sum of what is received;
 * Alltoall: to all members together). */

/* Elements as programs have them: reductions cost what their arithmetic costs. */
static MPI_Datatype element(int bytes, int *count, MPI_Op *operation)
{
    *operation = MPI_SUM;
    if (bytes % 8 == 0) {
        *count = bytes / 8;
        return MPI_DOUBLE;
    }
    if (bytes % 4 == 0) {
        *count = bytes / 4;
        return MPI_INT;
    }
    *count = bytes;
    *operation = MPI_BOR;
    return MPI_BYTE;
}

/* Bytes of one member's part. */
static int64_t part_of(int64_t call, int64_t bytes, int members)
{
    return call == ALLTOALL || call == REDUCE_SCATTER_BLOCK ? bytes / members : bytes;
}

/* Bytes that a process sends from and receives into at most, whatever its role in the call. */
static void rooms(int64_t call, int64_t bytes, int members, int64_t *out, int64_t *in)
{
    int64_t part = part_of(call, bytes, members);
    *out = call == SCATTER || call == ALLTOALL || call == REDUCE_SCATTER_BLOCK
        ? part * members : bytes;
    *in = call == GATHER || call == ALLGATHER || call == ALLTOALL ? part * members : bytes;
}

static int collective(const struct op *o)
{
    int n = o->bytes, root = o->peer;
    MPI_Op operation;
    int count;
    switch (o->arg) {
    case BARRIER:
        return MPI_Barrier(o->comm);
    case BCAST:
        return MPI_Bcast(o->second, n, MPI_BYTE, root, o->comm);
    case GATHER:
        return MPI_Gather(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, root, o->comm);
    case SCATTER:
        return MPI_Scatter(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, root, o->comm);
    case ALLGATHER:
        return MPI_Allgather(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, o->comm);
    case ALLTOALL:
        return MPI_Alltoall(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, o->comm);
    }
    MPI_Datatype type = element(n, &count, &operation);
    switch (o->arg) {
    case REDUCE:
        return MPI_Reduce(o->buffer, o->second, count, type, operation, root, o->comm);
    case ALLREDUCE:
        return MPI_Allreduce(o->buffer, o->second, count, type, operation, o->comm);
    case REDUCE_SCATTER_BLOCK:
        return MPI_Reduce_scatter_block(o->buffer, o->second, count, type, operation, o->comm);
    case SCAN:
        return MPI_Scan(o->buffer, o->second, count, type, operation, o->comm);
    case EXSCAN:
        return MPI_Exscan(o->buffer, o->second, count, type, operation, o->comm);
    }
    return MPI_ERR_OTHER;
}

static int collective_start(const struct op *o, MPI_Request *r)
{
    int n = o->bytes, root = o->peer;
    MPI_Op operation;
    int count;
    switch (o->arg) {
    case BARRIER:
        return MPI_Ibarrier(o->comm, r);
    case BCAST:
        return MPI_Ibcast(o->second, n, MPI_BYTE, root, o->comm, r);
    case GATHER:
        return MPI_Igather(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, root, o->comm, r);
    case SCATTER:
        return MPI_Iscatter(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, root, o->comm, r);
    case ALLGATHER:
        return MPI_Iallgather(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, o->comm, r);
    case ALLTOALL:
        return MPI_Ialltoall(o->buffer, n, MPI_BYTE, o->second, n, MPI_BYTE, o->comm, r);
    }
    MPI_Datatype type = element(n, &count, &operation);
    switch (o->arg) {
    case REDUCE:
        return MPI_Ireduce(o->buffer, o->second, count, type, operation, root, o->comm, r);
    case ALLREDUCE:
        return MPI_Iallreduce(o->buffer, o->second, count, type, operation, o->comm, r);
    case REDUCE_SCATTER_BLOCK:
        return MPI_Ireduce_scatter_block(o->buffer, o->second, count, type, operation, o->comm,
                                         r);
    case SCAN:
        return MPI_Iscan(o->buffer, o->second, count, type, operation, o->comm, r);
    case EXSCAN:
        return MPI_Iexscan(o->buffer, o->second, count, type, operation, o->comm, r);
    }
    return MPI_ERR_OTHER;
}
