/* Persistent and neighbourhood collectives, lists of numbers, windows and files: what their wrappers say.
 * Included by p3s_tracer.h. */
#ifndef P3S_WINDOW_H
#define P3S_WINDOW_H

/* ---- persistent collectives: kept with the request, an event at each MPI_Start ------------- */

void p3s_coll_init(struct p3s_here *h, uint64_t request, MPI_Comm comm, int root, int64_t count,
                   MPI_Datatype type);
void p3s_coll_bytes_init(struct p3s_here *h, uint64_t request, MPI_Comm comm, int64_t bytes,
                         MPI_Datatype type);

/* ---- MPI_Isendrecv -------------------------------------------------------------------------- */

void p3s_second_half(struct p3s_here *h, MPI_Comm comm, int source, int tag, int64_t count,
                     MPI_Datatype type, uint64_t request);

/* Bytes of several parts of different types, and the first type that takes part; types of empty
 * parts mean nothing. */
struct p3s_moved { int64_t bytes; MPI_Datatype type; };
#define P3S_MOVED(counts, types, n)                                                              \
    ({ struct p3s_moved m_ = {0, p3s_mpi.type_null};                                             \
       for (int i_ = (n) - 1; i_ >= 0; i_--)                                                     \
           if ((counts)[i_]) {                                                                   \
               m_.type = (types)[i_];                                                            \
               m_.bytes += (counts)[i_] * p3s_type_bytes(m_.type);                               \
           }                                                                                     \
       m_; })

/* ---- lists of numbers that calls have, written once ------------------------------------------ */

/* Number of a list, from 1; 0 if the trace has no room for it. Needs p3s_lock. */
uint32_t p3s_numbers(const int64_t *list, int length);

/* ---- neighbours: whom a process exchanges with, by the topology of its communicator ---------- */

/* What calls of one kind said the last time: their arguments (list), and what follows from them;
 * sent: elements sent to all together. */
struct p3s_sizes {
    int64_t *list;
    int length;
    uint32_t number;            /* of its NUMBERS */
    int64_t sent;
    struct p3s_moved moved;
};

/* Slots of the arrays of a call: first those it sends to, then those it receives from. Where there
 * is nobody, beyond the edge of the grid, there is false; receivers: how many are sent to. */
struct p3s_neighbours {
    int out, in, receivers;
    bool *there;
    int64_t *list;              /* arguments of a call */
    struct p3s_sizes last[4];
};
struct p3s_neighbours *p3s_neighbours(MPI_Comm comm);
void p3s_neighbours_free(struct p3s_neighbours *n);

/* The counts of some slots, from place first of the list on. */
#define P3S_COUNTS(n, first, length, counts)                                                     \
    do {                                                                                         \
        for (int i_ = 0; i_ < (length); i_++)                                                    \
            (n)->list[(first) + i_] = (counts)[i_];                                              \
    } while (0)
/* What the call's numbers are: bytes to each and from each; to each, and from every single one;
 * to and from every single one, all of one type, or each of its own. They return what is sent, in
 * elements or bytes. */
int64_t p3s_sizes_same(struct p3s_here *h, struct p3s_neighbours *n, int64_t sent,
                       MPI_Datatype sendtype, int64_t received, MPI_Datatype recvtype);
int64_t p3s_sizes_gathered(struct p3s_here *h, struct p3s_neighbours *n, int64_t sent,
                           MPI_Datatype sendtype, MPI_Datatype recvtype);
int64_t p3s_sizes_each(struct p3s_here *h, struct p3s_neighbours *n, MPI_Datatype sendtype,
                       MPI_Datatype recvtype);
struct p3s_moved p3s_sizes_typed(struct p3s_here *h, struct p3s_neighbours *n,
                                 const MPI_Datatype *sendtypes, const MPI_Datatype *recvtypes);

/* ---- windows and files ----------------------------------------------------------------------- */

enum { P3S_WINDOW = 1, P3S_FILE = 2 };
void p3s_opened(struct p3s_here *h, MPI_Comm comm, int kind, uint64_t handle);
int p3s_opened_number(int kind, uint64_t handle);
/* As of communicators: forgotten before the real call, and kept if that fails. */
struct p3s_opened *p3s_closing(int kind, uint64_t handle);
void p3s_closed(struct p3s_here *h, struct p3s_opened *o);
void p3s_not_closed(int kind, uint64_t handle, struct p3s_opened *o);
/* An event on a window or file; peer is a rank of its communicator or P3S_NO_RANK. */
void p3s_on(struct p3s_here *h, int kind, uint64_t handle, int peer, int64_t count,
            MPI_Datatype type);

/* ---- files: where in them, and what is known of them ------------------------------------------ */

enum { P3S_AT, P3S_OWN, P3S_SHARED };   /* an offset is given, or the pointer is this one */
void p3s_file_opened(struct p3s_here *h, MPI_Comm comm, const char *name, int mode, MPI_File file);
void p3s_file_view(struct p3s_here *h, MPI_File file, int64_t start, MPI_Datatype element,
                   MPI_Datatype type);
void p3s_file_closed(uint64_t handle);
/* An event that moves count of type. */
void p3s_file_moved(struct p3s_here *h, MPI_File file, int how, int64_t offset, int64_t count,
                    MPI_Datatype type);

/* Synchronisation of a window: what the program asserts is the event's tag, in these bits. */
enum { P3S_NOCHECK = 1, P3S_NOSTORE = 2, P3S_NOPUT = 4, P3S_NOPRECEDE = 8, P3S_NOSUCCEED = 16 };
void p3s_sync(struct p3s_here *h, uint64_t handle, int peer, int assert);
void p3s_sync_group(struct p3s_here *h, uint64_t handle, MPI_Group group, int assert);

/* ---- communicators without a parent, or not usable yet ---------------------------------------- */

void p3s_comm_idup(struct p3s_here *h, MPI_Comm parent);
void p3s_comm_from_groups(struct p3s_here *h, MPI_Comm made);
void p3s_comm_joined(struct p3s_here *h, MPI_Comm made);
/* Has another world started this one? Its ranks have numbers of their own: not recorded. */
bool p3s_spawned(void);

#endif
