/* Persistent and neighbourhood collectives, windows and files: what their wrappers say.
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

/* ---- neighbours: whom a process sends to, by the topology of its communicator --------------- */

/* Slot i of the arrays of a call; false: beyond the edge of the grid, nobody is there. */
struct p3s_neighbours { int slots; bool *there; };
const struct p3s_neighbours *p3s_neighbours(MPI_Comm comm);
void p3s_neighbours_forget(int comm_id);
/* start + count for each process that is sent to */
int64_t p3s_out_sum(MPI_Comm comm, int64_t start, int64_t count);

#define P3S_OUT_SUM(comm, counts)                                                                \
    ({ int64_t s_ = 0; const struct p3s_neighbours *o_ = p3s_neighbours(comm);                   \
       for (int i_ = 0; i_ < o_->slots; i_++)                                                    \
           if (o_->there[i_])                                                                    \
               s_ += (counts)[i_];                                                               \
       s_; })

/* Bytes of several parts of different types, and the first type that takes part; types of empty
 * parts mean nothing. */
struct p3s_moved { int64_t bytes; MPI_Datatype type; };
#define P3S_MOVED_IF(counts, types, n, takes_part)                                               \
    ({ struct p3s_moved m_ = {0, p3s_mpi.type_null};                                             \
       for (int i_ = (n) - 1; i_ >= 0; i_--)                                                     \
           if ((takes_part) && (counts)[i_]) {                                                   \
               m_.type = (types)[i_];                                                            \
               m_.bytes += (counts)[i_] * p3s_type_bytes(m_.type);                               \
           }                                                                                     \
       m_; })
#define P3S_MOVED(counts, types, n) P3S_MOVED_IF(counts, types, n, true)
#define P3S_OUT_MOVED(comm, counts, types)                                                       \
    ({ const struct p3s_neighbours *o_ = p3s_neighbours(comm);                                   \
       P3S_MOVED_IF(counts, types, o_->slots, o_->there[i_]); })

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

/* ---- communicators without a parent, or not usable yet ---------------------------------------- */

void p3s_comm_idup(struct p3s_here *h, MPI_Comm parent);
void p3s_comm_from_groups(struct p3s_here *h, MPI_Comm made);
void p3s_comm_joined(struct p3s_here *h, MPI_Comm made);
/* Has another world started this one? Its ranks have numbers of their own: not recorded. */
bool p3s_spawned(void);

#endif
