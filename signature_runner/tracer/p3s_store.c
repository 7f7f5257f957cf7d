/* What goes into the capture file (docs/capture-format.md): the header, definitions, events as
 * rows of variable-length numbers, completed requests, and the totals at the end. */
#include "p3s_chunk.h"
#include "p3s_inside.h"
#include "p3s_phase.h"
#include "p3s_team.h"

#include <errno.h>
#include <fcntl.h>
#ifdef __linux__
#include <linux/futex.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEADER_BYTES 4096
#define LONGEST_ROW (10 * (5 + P3S_MAX_COUNTERS))

/* The payload ends before the team where that and what follows are 0. */
#define CALL_BYTES offsetof(struct p3s_call, team)
_Static_assert(CALL_BYTES == 56, "CALL payload must stay 56 bytes");
_Static_assert(sizeof(struct p3s_call) == 72, "no padding may be compared");
_Static_assert(offsetof(struct p3s_header, clock_cost_ns) == 40, "header layout");
_Static_assert(offsetof(struct p3s_header, family) == 64, "header layout");
_Static_assert(offsetof(struct p3s_header, counter_names) == 144, "header layout");
_Static_assert(offsetof(struct p3s_header, limit_bytes) == 288, "header layout");
_Static_assert(offsetof(struct p3s_header, work_origin) == 360, "header layout");
_Static_assert(offsetof(struct p3s_header, run) == 424, "header layout");
_Static_assert(offsetof(struct p3s_header, header_crc) == 508, "header layout");
_Static_assert(offsetof(struct p3s_header, failed_polls) == 512, "header layout");
_Static_assert(offsetof(struct p3s_header, tracer_ns) == 552, "header layout");
_Static_assert(offsetof(struct p3s_header, phases_at) == 560, "header layout");
_Static_assert(offsetof(struct p3s_header, resident_init) == 568, "header layout");
_Static_assert(offsetof(struct p3s_header, alive) == 1024, "header layout");

struct p3s_header *p3s_header;

static char directory[4000];
static int my_rank;
static struct p3s_chunk defs, events, done, resolved, threads, accesses;
static uint64_t limit_bytes;
static bool limited;            /* the limit is reached: events are only counted */
static bool stopped;            /* the file cannot grow */
static uint64_t event_count, done_count, resolved_count, counted;
static uint64_t left_out;       /* events only counted since the last that was stored */
static uint32_t def_count, call_count, site_count;
static int64_t previous_end_ns;
static uint32_t columns;

void p3s_warn(const char *what, int error)
{
    /* One line per job: the rank that creates the marker speaks. */
    static char path[sizeof directory + sizeof "/warned"];
    struct p3s_signals signals;
    snprintf(path, sizeof path, "%s/warned", directory);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
    else if (errno == EEXIST || my_rank != 0)
        return;
    p3s_signals_hold(&signals);
    fprintf(stderr, "p3s: warning: rank %d: %s in %s: %s; the program goes on, not traced\n",
            my_rank, what, directory, strerror(error));
    p3s_signals_drop(&signals);
}

/* Rather no more events than a capture with holes that says it is complete. */
void p3s_stop(const char *what, int error)
{
    if (stopped || !p3s_header)
        return;
    stopped = true;
    p3s_active = 0;
    p3s_header->flags |= P3S_FLAG_STOPPED;
    p3s_warn(what, error);
}

static bool next_chunk(struct p3s_chunk *c, int kind, uint32_t cols, uint64_t first,
                       int64_t base_ns, size_t need)
{
    int error = stopped ? EFBIG : p3s_chunk_next(c, kind, cols, first, base_ns, need);
    if (!error)
        return true;
    p3s_stop("cannot extend the trace file", error);
    return false;
}

/* ---- header ---------------------------------------------------------------------------------- */

static void mark_alive(pthread_mutex_t *mutex)
{
#if defined(__GLIBC__) && defined(FUTEX_WAITERS)                /* of others the layout is not known to the reader */
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    /* The bit makes the kernel wake whoever waits on the word when it marks it. */
    if (pthread_mutex_init(mutex, &kind) == 0 && pthread_mutex_lock(mutex) == 0)
        __atomic_fetch_or((uint32_t *)mutex, FUTEX_WAITERS, __ATOMIC_RELAXED);
    pthread_mutexattr_destroy(&kind);
#endif
}

bool p3s_store_open(const char *dir, const struct p3s_header *facts)
{
    char path[4096];
    void *mapped = NULL;
    if (strlen(dir) >= sizeof directory)
        return false;
    strcpy(directory, dir);
    my_rank = facts->rank;
    snprintf(path, sizeof path, "%s/rank-%06d.p3t", dir, my_rank);
    int error = p3s_file_open(path, HEADER_BYTES, &mapped);
    if (error) {
        /* EEXIST: another program of this run has this rank: a second MPI program or a spawned
         * one, which is as it should be, or one of N programs of size 1. */
        if (error == EEXIST && facts->size == 1 && facts->launched > 1)
            p3s_warn("the ranks run as separate programs of 1 rank (another MPI than the"
                     " launcher's?), cannot create the trace file", error);
        else if (error != EEXIST)
            p3s_warn("cannot create the trace file", error);
        return false;
    }
    struct p3s_header *h = mapped;
    *h = *facts;
    h->major = 2;
    h->minor = 4;
    h->header_bytes = HEADER_BYTES;
    h->pid = getpid();
    gethostname(h->host, sizeof h->host - 1);
    memcpy(h->magic, "P3STRACE", 8);
    h->header_crc = p3s_crc(0, h, offsetof(struct p3s_header, header_crc));
    p3s_file_owner(my_rank, (uint32_t)((uint64_t)h->pid ^ (uint64_t)h->init_monotonic_ns));
    mark_alive(&h->alive);
    p3s_header = h;
    limit_bytes = h->limit_bytes;
    columns = 4 + h->counters;
    if (next_chunk(&defs, P3S_CHUNK_DEFS, 0, 0, 0, 0)) {
        p3s_phase_open(getenv("P3S_SIGNATURE"));
        columns += p3s_phases;
        return true;
    }
    p3s_header = NULL;
    p3s_file_drop(path);
    return false;
}

/* ---- definitions ------------------------------------------------------------------------------ */

bool p3s_define(uint32_t kind, const void *head, size_t head_bytes, const void *tail,
                size_t tail_bytes)
{
    size_t payload = head_bytes + tail_bytes, total = 8 + ((payload + 7) & ~(size_t)7);
    if (!p3s_header || stopped)
        return false;
    if (!p3s_chunk_fits(&defs, total) &&
        !next_chunk(&defs, P3S_CHUNK_DEFS, 0, call_count, site_count, total))
        return false;
    char *at = defs.payload + defs.used;
    uint32_t words[2] = {kind, (uint32_t)payload};
    memcpy(at, words, 8);
    if (head_bytes)
        memcpy(at + 8, head, head_bytes);
    if (tail_bytes)
        memcpy(at + 8 + head_bytes, tail, tail_bytes);
    memset(at + 8 + payload, 0, total - 8 - payload);
    p3s_chunk_commit(&defs, at + total);
    def_count++;
    call_count += kind == P3S_REC_CALL;
    site_count += kind == P3S_REC_SITE;
    return true;
}

unsigned char p3s_op_known[P3S_OP_COUNT];

void p3s_put_op(uint32_t op)
{
    if (!p3s_op_known[op] &&
        p3s_define(P3S_REC_OPNAME, &op, sizeof op, p3s_op_names[op], strlen(p3s_op_names[op])))
        __atomic_store_n(&p3s_op_known[op], 1, __ATOMIC_RELAXED);
}

/* ---- distinct calls: written once, then only their number -------------------------------------- */

static struct { struct p3s_call call; uint32_t number_plus_1; } *calls;
static size_t calls_mask, calls_used;

/* An irregular program may never repeat itself. When this many calls are known they are
 * forgotten; one that comes again is described again, under another number. */
#define MOST_CALLS (1 << 16)

static void forget_calls(void);

#define CALL_WORDS (sizeof(struct p3s_call) / sizeof(uint64_t))

/* Two chains of multiplications, which the processor works on at once. */
static uint64_t hash_call(const struct p3s_call *c)
{
    uint64_t w[CALL_WORDS], x = 0, y = 0;
    memcpy(w, c, sizeof w);
    for (size_t i = 0; i + 1 < CALL_WORDS; i += 2) {
        x = ((x << 23 | x >> 41) ^ w[i]) * 0x9e3779b97f4a7c15u;
        y = ((y << 23 | y >> 41) ^ w[i + 1]) * 0xc2b2ae3d27d4eb4fu;
    }
    x ^= (y ^ w[CALL_WORDS - 1]) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 32;
}

static bool same_call(const struct p3s_call *a, const struct p3s_call *b)
{
    uint64_t v[CALL_WORDS], w[CALL_WORDS], differ = 0;
    memcpy(v, a, sizeof v);
    memcpy(w, b, sizeof w);
    for (size_t i = 0; i < CALL_WORDS; i++)
        differ |= v[i] ^ w[i];
    return !differ;
}

static bool grow_calls(void)
{
    size_t bigger = calls ? 2 * (calls_mask + 1) : 128;
    __typeof__(calls) fresh = calloc(bigger, sizeof *fresh);
    if (!fresh)
        return false;
    for (size_t i = 0; calls && i <= calls_mask; i++) {
        if (!calls[i].number_plus_1)
            continue;
        size_t at = hash_call(&calls[i].call) & (bigger - 1);
        while (fresh[at].number_plus_1)
            at = (at + 1) & (bigger - 1);
        fresh[at] = calls[i];
    }
    free(calls);
    calls = fresh;
    calls_mask = bigger - 1;
    return true;
}

/* What the file has of it: up to the last number that is not 0. */
static size_t bytes_of(const struct p3s_call *c)
{
    return c->block || c->memory ? sizeof *c
         : c->numbers ? offsetof(struct p3s_call, block)
         : c->team ? offsetof(struct p3s_call, numbers) : CALL_BYTES;
}

static int64_t call_number(const struct p3s_call *c)
{
    if (calls_used == MOST_CALLS)
        forget_calls();
    if ((!calls || 2 * calls_used > calls_mask) && !grow_calls()) {
        p3s_stop("no memory for the trace", ENOMEM);
        return -1;
    }
    size_t at = hash_call(c) & calls_mask;
    for (; calls[at].number_plus_1; at = (at + 1) & calls_mask)
        if (same_call(&calls[at].call, c))
            return calls[at].number_plus_1 - 1;
    if (!p3s_op_known[c->op])
        p3s_put_op(c->op);
    if (!p3s_define(P3S_REC_CALL, c, bytes_of(c), NULL, 0))
        return -1;
    calls[at].call = *c;
    calls[at].number_plus_1 = call_count;
    calls_used++;
    return (int64_t)call_count - 1;
}

/* ---- rows -------------------------------------------------------------------------------------- */

static inline char *put_number(char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (char)(value | 0x80);
    *at++ = (char)value;
    return at;
}

static inline uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static void count_only(uint32_t call, int64_t elapsed_ns, int64_t work);

uint64_t p3s_put_event(const struct p3s_call *call, int64_t start_ns, int64_t elapsed_ns,
                       int64_t work, const uint64_t *counters)
{
    if (!p3s_active || p3s_header->paused)
        return P3S_NO_EVENT;
    int64_t number = call_number(call);
    if (number < 0)
        return P3S_NO_EVENT;
    if (p3s_phases && !p3s_phase_wants((uint32_t)number, call, elapsed_ns, work)) {
        p3s_header->flags |= P3S_FLAG_SAMPLED;
        left_out++;
        count_only((uint32_t)number, elapsed_ns, work);
        return P3S_NO_EVENT;
    }
    if (limited) {
        count_only((uint32_t)number, elapsed_ns, work);
        return P3S_NO_EVENT;
    }
    if (!p3s_chunk_fits(&events, LONGEST_ROW)) {
        if (limit_bytes && event_count && p3s_file_bytes() + p3s_chunk_size(&events) > limit_bytes) {
            limited = true;
            p3s_header->flags |= P3S_FLAG_LIMITED;
            p3s_chunk_seal(&events);
            count_only((uint32_t)number, elapsed_ns, work);
            return P3S_NO_EVENT;
        }
        if (!next_chunk(&events, P3S_CHUNK_EVENTS + p3s_phases * P3S_CHUNK_VERSION_2, columns, event_count, previous_end_ns,
                        LONGEST_ROW))
            return P3S_NO_EVENT;
    }
    int64_t gap = start_ns - previous_end_ns;
    char *at = put_number(events.payload + events.used, (uint64_t)number);
    at = put_number(at, zigzag(gap));
    at = put_number(at, (uint64_t)elapsed_ns);
    at = put_number(at, p3s_work_source == P3S_WORK_INSTRUCTIONS ? (uint64_t)work
                                                                 : zigzag(gap - work));
    for (uint32_t i = 4; i < columns - p3s_phases; i++)
        at = put_number(at, counters ? counters[i - 4] : 0);
    if (p3s_phases)
        at = put_number(at, left_out);
    left_out = 0;
    p3s_chunk_commit(&events, at);
    previous_end_ns = start_ns + elapsed_ns;
    return event_count++;
}

void p3s_put_done(uint64_t completing, uint64_t posting, bool cancelled)
{
    static uint64_t last;
    if (!p3s_active || completing == P3S_NO_EVENT || posting == P3S_NO_EVENT)
        return;
    if (!p3s_chunk_fits(&done, 20)) {
        if (!next_chunk(&done, P3S_CHUNK_DONE, 2, completing, 0, 20))
            return;
        last = completing;
    }
    /* Of several threads the one that completes later may come first. */
    char *at = put_number(done.payload + done.used, zigzag((int64_t)(completing - last)));
    p3s_chunk_commit(&done, put_number(at, (completing - posting) << 1 | cancelled));
    last = completing;
    done_count++;
}

void p3s_put_resolved(uint64_t ordinal, int source, int tag, int64_t bytes)
{
    static uint64_t last;
    if (!p3s_active || ordinal == P3S_NO_EVENT)
        return;
    if (!p3s_chunk_fits(&resolved, 40)) {
        if (!next_chunk(&resolved, P3S_CHUNK_RESOLVED, 4, ordinal, 0, 40))
            return;
        last = ordinal;
    }
    char *at = put_number(resolved.payload + resolved.used, zigzag((int64_t)(ordinal - last)));
    at = put_number(put_number(at, zigzag(source)), zigzag(tag));
    p3s_chunk_commit(&resolved, put_number(at, (uint64_t)bytes));
    last = ordinal;
    resolved_count++;
}

void p3s_put_access(uint64_t ordinal, int64_t offset, int64_t span)
{
    static uint64_t last;
    if (!p3s_active || ordinal == P3S_NO_EVENT)
        return;
    if (!p3s_chunk_fits(&accesses, 30)) {
        if (!next_chunk(&accesses, P3S_CHUNK_ACCESSES, 3, ordinal, 0, 30))
            return;
        last = ordinal;
    }
    char *at = put_number(accesses.payload + accesses.used, zigzag((int64_t)(ordinal - last)));
    p3s_chunk_commit(&accesses, put_number(put_number(at, (uint64_t)offset), (uint64_t)span));
    last = ordinal;
}

#define THREADS_COLUMNS (1 + P3S_SEGMENT_NUMBERS)
#define THREADS_ROW (10 * THREADS_COLUMNS)

/* The row of an event before which threads worked. */
void p3s_put_threads(uint64_t ordinal, const struct p3s_segment *segment)
{
    static uint64_t last;
    if (!p3s_active || ordinal == P3S_NO_EVENT || !(segment->regions || segment->others_ns))
        return;
    p3s_runtime_define();
    if (!p3s_chunk_fits(&threads, THREADS_ROW)) {
        if (!next_chunk(&threads, P3S_CHUNK_THREADS, THREADS_COLUMNS, ordinal, 0, THREADS_ROW))
            return;
        last = ordinal;
    }
    const uint64_t *number = (const uint64_t *)segment;
    char *at = put_number(threads.payload + threads.used, zigzag((int64_t)(ordinal - last)));
    for (size_t i = 0; i < P3S_SEGMENT_NUMBERS; i++)
        at = put_number(at, number[i]);
    p3s_chunk_commit(&threads, at);
    last = ordinal;
}

/* ---- after the limit: totals by call, updated in place -------------------------------------------- */

#define COUNTS_PER_CHUNK 510   /* 16 KiB */

struct row { uint64_t events; int64_t elapsed_ns, work; uint64_t unused; };

static struct p3s_chunk *counts;
static size_t count_chunks;

static void count_only(uint32_t call, int64_t elapsed_ns, int64_t work)
{
    size_t k = call / COUNTS_PER_CHUNK, at = call % COUNTS_PER_CHUNK;
    if (k >= count_chunks) {
        struct p3s_chunk *more = realloc(counts, (k + 1) * sizeof *counts);
        if (!more) {
            p3s_stop("no memory for the trace", ENOMEM);
            return;
        }
        counts = more;
        memset(counts + count_chunks, 0, (k + 1 - count_chunks) * sizeof *counts);
        count_chunks = k + 1;
    }
    if (!counts[k].at && !next_chunk(&counts[k], P3S_CHUNK_COUNTS, 0, k * COUNTS_PER_CHUNK, 0,
                                     COUNTS_PER_CHUNK * sizeof(struct row)))
        return;
    struct row *r = (struct row *)counts[k].payload + at;
    r->events++;
    r->elapsed_ns += elapsed_ns;
    r->work += work;
    counted++;
    if (counts[k].used < (at + 1) * sizeof *r) {
        counts[k].used = (uint32_t)((at + 1) * sizeof *r);
        counts[k].at->count = (uint32_t)at + 1;
        __atomic_store_n(&counts[k].at->state, (uint64_t)counts[k].used, __ATOMIC_RELEASE);
    }
}

static void seal_counts(size_t end)
{
    for (size_t k = 0; k < end && k < count_chunks; k++)
        if (counts[k].at) {
            /* Until now its checksum could not hold: the rows change in place. */
            uint64_t crc = p3s_crc(0, counts[k].payload, counts[k].used);
            __atomic_store_n(&counts[k].at->state, crc << 32 | counts[k].used, __ATOMIC_RELEASE);
            p3s_chunk_seal(&counts[k]);
        }
}

static void forget_calls(void)
{
    memset(calls, 0, (calls_mask + 1) * sizeof *calls);
    calls_used = 0;
    seal_counts(call_count / COUNTS_PER_CHUNK); /* none of their calls comes again */
}

/* ---- the end --------------------------------------------------------------------------------------- */

void p3s_store_close(void)
{
    struct {
        uint64_t events, done, resolved, chunks, failed_polls;
        int64_t failed_poll_ns;
        uint64_t counted, paused_calls;
        uint32_t flags, defs, calls, sites;
        int64_t tracer_ns;
        uint64_t resident_init, resident_peak, preempted;
    } end;
    struct p3s_chunk last = {0};
    _Static_assert(sizeof end == 112, "END payload");
    if (!p3s_header)
        return;
    p3s_pool_define();
    p3s_chunk_seal(&defs);
    p3s_chunk_seal(&events);
    p3s_chunk_seal(&done);
    p3s_chunk_seal(&resolved);
    p3s_chunk_seal(&threads);
    p3s_chunk_seal(&accesses);
    seal_counts(count_chunks);
    p3s_phase_seal();
    if (!stopped && next_chunk(&last, P3S_CHUNK_END, 0, event_count, 0, sizeof end)) {
        end = (__typeof__(end)){event_count, done_count, resolved_count, p3s_file_chunks(),
                                p3s_header->failed_polls, p3s_header->failed_poll_ns, counted,
                                p3s_header->paused_calls, p3s_header->flags, def_count,
                                call_count, site_count, p3s_header->tracer_ns,
                                p3s_header->resident_init, p3s_header->resident_peak,
                                p3s_header->preempted};
        memcpy(last.payload, &end, sizeof end);
        p3s_chunk_commit(&last, last.payload + sizeof end);
        p3s_chunk_seal(&last);
    }
    p3s_file_close();
    stopped = true;             /* nothing is written any more; the header stays mapped */
}
