/* Programs that begin by sessions and may never call MPI_Init: the process set mpi://WORLD is their
 * MPI_COMM_WORLD. Recording begins with the first session and ends with the last one, unless
 * MPI_Init was called, too: then it ends with MPI_Finalize. */
#include "p3s_inside.h"

#ifdef P3S_HAVE_Session_init
#define MAX_SESSIONS 64

static struct { MPI_Session session; bool used; } opened[MAX_SESSIONS];
static int open_count;
static bool by_sessions;        /* recording has begun with one, and MPI_Init was not called */
static int group_of = -1;       /* whose session the group of the world is */

static bool world_group(int at)
{
    if (PMPI_Group_from_session_pset(opened[at].session, "mpi://WORLD", &p3s_world_group) !=
        MPI_SUCCESS)
        return false;
    group_of = at;
    return true;
}

/* Where the session stands in the table, -1 if there is no place left. Needs p3s_lock. */
static int remember(MPI_Session session)
{
    open_count++;
    for (int i = 0; i < MAX_SESSIONS; i++)
        if (!opened[i].used) {
            opened[i].session = session;
            opened[i].used = true;
            return i;
        }
    return -1;
}

void p3s_session_opened(MPI_Session session)
{
    pthread_mutex_lock(&p3s_lock);
    remember(session);
    pthread_mutex_unlock(&p3s_lock);
}

void p3s_session_first(struct p3s_here *h, int rc, const MPI_Session *session)
{
    struct p3s_world world = {.sessions = true};
    h->t1_ns = p3s_clock_ns(CLOCK_MONOTONIC);
    int at = rc == MPI_SUCCESS ? remember(*session) : -1;
    bool there = at >= 0 && world_group(at) &&
                 PMPI_Group_rank(p3s_world_group, &world.rank) == MPI_SUCCESS &&
                 PMPI_Group_size(p3s_world_group, &world.size) == MPI_SUCCESS;
    by_sessions = p3s_begin(h, there ? &world : NULL);
}

void p3s_session_world_model(void)
{
    MPI_Group group;
    if (by_sessions && p3s_active &&
        PMPI_Comm_group(p3s_mpi.comm_world, &group) == MPI_SUCCESS) {
        PMPI_Group_free(&p3s_world_group);
        p3s_world_group = group;
        group_of = -1;
    }
    by_sessions = false;
}

bool p3s_session_closing(MPI_Session session)
{
    int at = -1, other = -1;
    pthread_mutex_lock(&p3s_lock);
    for (int i = 0; i < MAX_SESSIONS; i++)
        if (opened[i].used && P3S_HANDLE(opened[i].session) == P3S_HANDLE(session))
            at = i;
        else if (opened[i].used)
            other = i;
    open_count -= open_count > 0;
    bool last = by_sessions && !open_count;
    if (at >= 0)
        opened[at].used = false;
    if (at >= 0 && at == group_of && !last && p3s_active) {
        PMPI_Group_free(&p3s_world_group);  /* it may not outlive its session */
        group_of = -1;
        if (other >= 0)
            world_group(other);
    }
    pthread_mutex_unlock(&p3s_lock);
    return last;
}
#else
void p3s_session_world_model(void) {}
#endif
