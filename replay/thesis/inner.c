/* Inner loop of the replay: executes a list of events and times the MPI calls in it.
 *
 * Measured processes, black holes and noise processes run the same code on different lists. It
 * is C because Python would add 0.4 us to every call and twice the communication time where
 * ranks share cores. The layout of struct event is that of replay/program.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    SEND = 1, SSEND, ISEND, ISSEND, BUFFERED, RECV, IRECV, SENDRECV, SECOND, WAIT, NOTHING, ASK,
    ANSWER, END, REST
};

enum { TAG_CONTROL = 0, CONTROL_WORDS = 4 };

struct event {
    int64_t code, peer, tag, bytes, offset, work_ns, arg, sample;
};

/* Where this process is; read by the watchdog while the loop runs. */
struct progress {
    int64_t steps; /* grows with every event */
    int64_t event, code, peer, bytes, tag, outstanding, pass;
};

struct state {
    MPI_Comm comm;
    char *out, *in;
    MPI_Request *requests; /* oldest first, from head */
    int head, tail;
    MPI_Request *hidden;   /* those that no event of the trace completes */
    int hidden_count;
    int64_t debt_ns;       /* computation that was too short to sleep */
    int shared_cores;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The least timer slack, for this sleep only: MPI libraries that sleep while they wait count on
 * the usual slack to leave the core to others. */
static void sleep_ns(int64_t duration_ns)
{
    struct timespec t = {duration_ns / 1000000000, duration_ns % 1000000000};
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
    prctl(PR_SET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
}

/* Pass the time that the computation takes. A sleep overshoots by some 20 us even with the least
 * timer slack, so it is cut short and the rest is spun, unless other processes need the core;
 * then too short pieces are put together and what was slept too long is taken off the next. */
static void compute(struct state *s, int64_t work_ns)
{
    enum { SHORTEST_SLEEP_NS = 150000, EARLY_NS = 100000 };
    s->debt_ns += work_ns;
    if (s->debt_ns <= 0)
        return;
    int64_t start_ns = now_ns();
    if (s->shared_cores) {
        if (s->debt_ns < SHORTEST_SLEEP_NS)
            return;
        sleep_ns(s->debt_ns);
    } else {
        if (s->debt_ns >= SHORTEST_SLEEP_NS)
            sleep_ns(s->debt_ns - EARLY_NS);
        while (now_ns() - start_ns < s->debt_ns)
            ;
    }
    s->debt_ns -= now_ns() - start_ns;
}

static int wait_oldest(struct state *s, int count)
{
    int waiting = s->tail - s->head;
    if (count > waiting)
        count = waiting;
    MPI_Request *first = s->requests + s->head;
    s->head += count;
    if (count == 1)
        return MPI_Wait(first, MPI_STATUS_IGNORE);
    return MPI_Waitall(count, first, MPI_STATUSES_IGNORE);
}

/* Take a control message and send the message that it asks for. Returns an MPI error code, or
 * MPI_ERR_OTHER when the control message is not the one that the plan says comes next. */
static int answer(struct state *s, const struct event *e)
{
    int64_t control[CONTROL_WORDS];
    int error = MPI_Recv(control, CONTROL_WORDS, MPI_INT64_T, (int)e->peer, TAG_CONTROL, s->comm,
                         MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS)
        return error;
    if (control[1] != e->bytes || control[2] != e->tag)
        return MPI_ERR_OTHER;
    return MPI_Isend(s->out, (int)control[1], MPI_BYTE, (int)e->peer, (int)control[2], s->comm,
                     &s->hidden[s->hidden_count++]);
}

static int ask(struct state *s, const struct event *e)
{
    int64_t control[CONTROL_WORDS] = {e->arg, e->bytes, e->tag, 0};
    return MPI_Send(control, CONTROL_WORDS, MPI_INT64_T, (int)e->peer, TAG_CONTROL, s->comm);
}

static int finish(struct state *s)
{
    int error = wait_oldest(s, s->tail - s->head);
    if (error == MPI_SUCCESS)
        error = MPI_Waitall(s->hidden_count, s->hidden, MPI_STATUSES_IGNORE);
    s->head = s->tail = s->hidden_count = 0;
    return error;
}

static int execute(struct state *s, const struct event *e)
{
    char *in = s->in + e->offset;
    int bytes = (int)e->bytes, peer = (int)e->peer, tag = (int)e->tag;
    switch (e->code) {
    case SEND:
        return MPI_Send(s->out, bytes, MPI_BYTE, peer, tag, s->comm);
    case SSEND:
        return MPI_Ssend(s->out, bytes, MPI_BYTE, peer, tag, s->comm);
    case ISEND:
        return MPI_Isend(s->out, bytes, MPI_BYTE, peer, tag, s->comm, &s->requests[s->tail++]);
    case ISSEND:
        return MPI_Issend(s->out, bytes, MPI_BYTE, peer, tag, s->comm, &s->requests[s->tail++]);
    case BUFFERED:
        return MPI_Isend(s->out, bytes, MPI_BYTE, peer, tag, s->comm,
                         &s->hidden[s->hidden_count++]);
    case RECV:
        return MPI_Recv(in, bytes, MPI_BYTE, peer, tag, s->comm, MPI_STATUS_IGNORE);
    case IRECV:
        return MPI_Irecv(in, bytes, MPI_BYTE, peer, tag, s->comm, &s->requests[s->tail++]);
    case SENDRECV:
        return MPI_Sendrecv(s->out, bytes, MPI_BYTE, peer, tag, s->in + e[1].offset,
                            (int)e[1].bytes, MPI_BYTE, (int)e[1].peer, (int)e[1].tag, s->comm,
                            MPI_STATUS_IGNORE);
    case WAIT:
        return wait_oldest(s, (int)e->arg);
    case NOTHING:
        s->requests[s->tail++] = MPI_REQUEST_NULL;
        return MPI_SUCCESS;
    case ASK:
        return ask(s, e);
    case ANSWER:
        return answer(s, e);
    case END:
        return finish(s);
    case SECOND:
    case REST:
        return MPI_SUCCESS;
    default:
        return MPI_ERR_OTHER;
    }
}

static int run_events(struct state *s, const struct event *events, int64_t count, int64_t passes,
                      double work_scale, int64_t *elapsed_ns, volatile struct progress *p)
{
    for (int64_t pass = 0; pass < passes; pass++) {
        p->pass = pass;
        for (int64_t i = 0; i < count; i++) {
            const struct event *e = &events[i];
            p->event = i;
            p->code = e->code;
            p->peer = e->peer;
            p->bytes = e->bytes;
            p->tag = e->tag;
            p->outstanding = s->tail - s->head + s->hidden_count;
            p->steps++;
            if (e->work_ns > 0)
                compute(s, (int64_t)((double)e->work_ns * work_scale));
            int64_t start_ns = now_ns();
            int error = execute(s, e);
            elapsed_ns[pass * count + i] = now_ns() - start_ns;
            if (error != MPI_SUCCESS)
                return error;
        }
    }
    return MPI_SUCCESS;
}

/* Execute the events `passes` times; elapsed_ns gets passes x count numbers.
 *
 * Returns 0, an MPI error code, or -1 when memory is short; progress says where it ended. */
int p3s_replay(int fortran_comm, const struct event *events, int64_t count, int64_t passes,
               int64_t out_bytes, int64_t in_bytes, double work_scale, int shared_cores,
               int64_t *elapsed_ns, struct progress *progress)
{
    struct state s = {.comm = MPI_Comm_f2c(fortran_comm), .shared_cores = shared_cores};
    /* Plain malloc: the page kind that the program's own buffers have. Touched once. */
    s.out = malloc((size_t)out_bytes + 64);
    s.in = malloc((size_t)in_bytes + 64);
    s.requests = malloc(sizeof *s.requests * (size_t)(count + 1));
    s.hidden = malloc(sizeof *s.hidden * (size_t)(count + 1));
    int error = -1;
    if (s.out && s.in && s.requests && s.hidden) {
        memset(s.out, 1, (size_t)out_bytes + 64);
        memset(s.in, 1, (size_t)in_bytes + 64);
        error = run_events(&s, events, count, passes, work_scale, elapsed_ns, progress);
    }
    free(s.out);
    free(s.in);
    free(s.requests);
    free(s.hidden);
    return error;
}
