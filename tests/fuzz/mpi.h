/* As much of an MPI as the tracer's writer and the replay's inner loop are compiled with. What its
 * functions do: interpreter.c. */
#ifndef P3S_FUZZ_MPI_H
#define P3S_FUZZ_MPI_H

#include <stddef.h>

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef int MPI_Group;
typedef int MPI_File;
typedef struct request *MPI_Request;
typedef struct message *MPI_Message;
typedef struct { int MPI_SOURCE, MPI_TAG, MPI_ERROR; } MPI_Status;

#define MPI_SUCCESS 0
#define MPI_ERR_RANK 6
#define MPI_ERR_ARG 12
#define MPI_ERR_OTHER 15
#define MPI_COMM_NULL 0
#define MPI_REQUEST_NULL ((MPI_Request)NULL)
#define MPI_ANY_SOURCE (-1)
#define MPI_ANY_TAG (-1)
#define MPI_PROC_NULL (-2)
#define MPI_UNDEFINED (-32766)
#define MPI_STATUS_IGNORE ((MPI_Status *)NULL)
#define MPI_STATUSES_IGNORE ((MPI_Status *)NULL)
#define MPI_IN_PLACE ((void *)-1)
/* A datatype is its number of bytes. */
#define MPI_BYTE 1
#define MPI_INT 4
#define MPI_DOUBLE 8
#define MPI_INT64_T 8
enum { MPI_SUM = 1, MPI_MAX, MPI_BOR };

#define P3S_BOTH(name, parameters) int MPI_##name parameters; int PMPI_##name parameters;

P3S_BOTH(Init, (int *argc, char ***argv))
P3S_BOTH(Init_thread, (int *argc, char ***argv, int required, int *provided))
P3S_BOTH(Finalize, (void))
P3S_BOTH(Abort, (MPI_Comm comm, int code))
P3S_BOTH(Pcontrol, (const int level, ...))
P3S_BOTH(Comm_size, (MPI_Comm comm, int *size))
P3S_BOTH(Comm_group, (MPI_Comm comm, MPI_Group *group))
P3S_BOTH(Group_free, (MPI_Group *group))
P3S_BOTH(Group_translate_ranks, (MPI_Group a, int n, const int *ranks, MPI_Group b, int *found))
P3S_BOTH(Send, (const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm))
P3S_BOTH(Ssend, (const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm))
P3S_BOTH(Recv, (void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Status *status))
P3S_BOTH(Sendrecv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest,
                    int sendtag, void *recvbuf, int recvcount, MPI_Datatype recvtype, int source,
                    int recvtag, MPI_Comm comm, MPI_Status *status))
P3S_BOTH(Isend, (const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                 MPI_Request *request))
P3S_BOTH(Issend, (const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                  MPI_Request *request))
P3S_BOTH(Irecv, (void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request *request))
P3S_BOTH(Send_init, (const void *buf, int count, MPI_Datatype type, int dest, int tag,
                     MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Ssend_init, (const void *buf, int count, MPI_Datatype type, int dest, int tag,
                      MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Recv_init, (void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                     MPI_Request *request))
P3S_BOTH(Start, (MPI_Request *request))
P3S_BOTH(Request_free, (MPI_Request *request))
P3S_BOTH(Wait, (MPI_Request *request, MPI_Status *status))
P3S_BOTH(Test, (MPI_Request *request, int *flag, MPI_Status *status))
P3S_BOTH(Waitall, (int count, MPI_Request *requests, MPI_Status *statuses))
P3S_BOTH(Waitany, (int count, MPI_Request *requests, int *index, MPI_Status *status))
P3S_BOTH(Waitsome, (int incount, MPI_Request *requests, int *outcount, int *indices,
                    MPI_Status *statuses))
P3S_BOTH(Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status))
P3S_BOTH(Barrier, (MPI_Comm comm))
P3S_BOTH(Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm))
P3S_BOTH(Gather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm))
P3S_BOTH(Scatter, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm))
P3S_BOTH(Allgather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                     int recvcount, MPI_Datatype recvtype, MPI_Comm comm))
P3S_BOTH(Alltoall, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                    int recvcount, MPI_Datatype recvtype, MPI_Comm comm))
P3S_BOTH(Reduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                  int root, MPI_Comm comm))
P3S_BOTH(Allreduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm))
P3S_BOTH(Reduce_scatter_block, (const void *sendbuf, void *recvbuf, int recvcount,
                                MPI_Datatype type, MPI_Op op, MPI_Comm comm))
P3S_BOTH(Scan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                MPI_Comm comm))
P3S_BOTH(Exscan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm))
P3S_BOTH(Ibarrier, (MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Ibcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
                  MPI_Request *request))
P3S_BOTH(Igather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                   MPI_Request *request))
P3S_BOTH(Iscatter, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                    int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                    MPI_Request *request))
P3S_BOTH(Iallgather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                      int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Ialltoall, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                     int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Ireduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                   int root, MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Iallreduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                      MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Ireduce_scatter_block, (const void *sendbuf, void *recvbuf, int recvcount,
                                 MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                 MPI_Request *request))
P3S_BOTH(Iscan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm, MPI_Request *request))
P3S_BOTH(Iexscan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request))

MPI_Comm MPI_Comm_f2c(int handle);

#endif
