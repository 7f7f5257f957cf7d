/* Drives the writer of captures with what the bytes of an input say: definitions, events, rows; a
 * plan of phases, a limit, a disk that fills up, memory that runs out, an end in between.
 *
 * With P3S_FUZZ_KEEP=DIR the capture of the i-th input stays in DIR/i, beside it what was written
 * (written.txt: a line per record), for who compares the two: tests/helpers/fuzz_c.py. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "p3s_inside.h"
#include "p3s_team.h"

/* ---- what fails ----------------------------------------------------------------------------- */

static uint32_t disk_left, memory_left;         /* so often it works still; 0: always */
static char plan[1 << 16];
static size_t plan_bytes;

static int fuzz_fallocate(int fd, off_t at, off_t bytes)
{
    if (disk_left && --disk_left == 0)
        return disk_left = 1, ENOSPC;
    return posix_fallocate(fd, at, bytes);
}

static bool short_of_memory(void)
{
    if (memory_left && --memory_left == 0)
        return memory_left = 1;
    return false;
}

static void *fuzz_calloc(size_t n, size_t bytes)
{
    return short_of_memory() ? NULL : calloc(n, bytes);
}

static void *fuzz_realloc(void *old, size_t bytes)
{
    return short_of_memory() ? NULL : realloc(old, bytes);
}

static FILE *fuzz_open_plan(void)
{
    return plan_bytes ? fmemopen(plan, plan_bytes, "r") : NULL;
}

#define posix_fallocate fuzz_fallocate
#define calloc fuzz_calloc
#define realloc fuzz_realloc
#define fopen(name, mode) fuzz_open_plan()
#define getenv(name) (plan_bytes ? "plan" : NULL)
#define fprintf(...) 0
/* A lock in memory that is unmapped while it is held would break those taken later. */
#define pthread_mutex_lock(mutex) EBUSY
#include "p3s_chunk.c"
#include "p3s_store.c"
#define row phase_row
#define now phase_now
#include "p3s_phase.c"
#undef now
#undef row
#undef posix_fallocate
#undef calloc
#undef realloc
#undef fopen
#undef getenv
#undef fprintf
#undef pthread_mutex_lock

/* ---- what the other files of the tracer have -------------------------------------------------- */

volatile int p3s_active;
int p3s_work_source;
const char *const p3s_op_names[] = {"MPI_Send", [1 ... P3S_OP_COUNT - 1] = "MPI_Fuzz"};

void p3s_pool_define(void) {}

void p3s_runtime_define(void)
{
    static const char text[] = "openmp=fuzz\nmax_threads=4\n";
    p3s_define(P3S_REC_RUNTIME, NULL, 0, text, sizeof text - 1);
}

/* ---- one input ---------------------------------------------------------------------------------- */

enum { SIZE = 64, MOST_STEPS = 400 };

static FILE *written;
static uint32_t sites, comms, windows_made, lists;
static int64_t now;

#define TELL(...) (written ? (void)fprintf(written, __VA_ARGS__) : (void)0)

static void forget_everything(void)
{
    struct p3s_chunk *open_ones[] = {&defs, &events, &done, &resolved, &threads, &accesses, &chunk};
    for (size_t i = 0; i < sizeof open_ones / sizeof *open_ones; i++)
        *open_ones[i] = (struct p3s_chunk){0};
    for (int i = 0; i < MOST_MAPPED; i++)
        if (mapped[i].bytes)
            unmap(mapped[i].from);
    watch_no_more();
    if (file >= 0)
        close(file);
    void *owned[] = {calls, counts, loops, knowns, phases, bounds, site_keys, made, history};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    p3s_header = NULL;
    file = -1;
    calls = NULL, counts = NULL, loops = NULL, knowns = NULL, phases = NULL, bounds = NULL;
    site_keys = NULL, made = NULL, history = NULL, rows = NULL;
    calls_mask = calls_used = count_chunks = 0;
    limit_bytes = event_count = done_count = resolved_count = counted = left_out = 0;
    def_count = call_count = site_count = columns = chunks = site_room = call_room = 0;
    limited = stopped = p3s_phases = false;
    previous_end_ns = 0;
    here = 0;
    memset(p3s_op_known, 0, sizeof p3s_op_known);
    sites = comms = windows_made = lists = 0;
    now = 0;
    phase_now = next = 0;
}

/* A plan: any text, or one that is mostly as P3S writes it. */
static void make_plan(struct input *in)
{
    uint32_t how = byte(in);
    plan_bytes = 0;
    if (how < 128)
        return;
    if (how < 136) {
        size_t bytes = (size_t)some(in, 10);
        while (plan_bytes < bytes)
            plan[plan_bytes++] = (char)byte(in);
        return;
    }
    uint32_t n_loops = 1 + byte(in) % 6, n_calls = byte(in) % 6, n_phases = 1 + byte(in) % 4;
    size_t at = (size_t)sprintf(plan, "p3s-plan 1\nsizes %u %u %u 33 %u %u %u %s\n", n_loops,
                                n_calls, n_phases, byte(in) % 3, 2 + byte(in) % 4,
                                2 + byte(in) % 40, byte(in) & 1 ? "work" : "time");
    for (uint32_t i = 0; i < n_loops; i++)
        at += (size_t)sprintf(plan + at, "loop %d %u %d\n", i ? (int)one_of(in, i) : -1,
                              byte(in) % 4, (int)one_of(in, n_phases + 1) - 1);
    for (uint32_t i = 0; i < n_calls; i++)
        at += (size_t)sprintf(plan + at, "call %x MPI_%s %u %u %u\n", byte(in) % 4,
                              byte(in) & 1 ? "Send" : "Fuzz", one_of(in, n_loops), byte(in) % 4,
                              one_of(in, n_phases));
    for (uint32_t i = 0; i < n_phases; i++)
        at += (size_t)sprintf(plan + at, "phase %u %u\n", byte(in) % 3, byte(in) << 12);
    for (int i = 0; i < 33; i++)
        at += (size_t)sprintf(plan + at, "bound %" PRIu64 "\n", (uint64_t)i << 40);
    plan_bytes = at;
}

static void define_site(struct input *in)
{
    struct { uint32_t number, frames; uint64_t key; } head = {sites, byte(in) % 4,
                                                              byte(in) % 4};
    char text[4 * 300];
    size_t bytes = 0;
    for (uint32_t i = 0; i < head.frames; i++) {
        for (size_t n = byte(in); n; n--)
            text[bytes++] = (char)('a' + (n + i) % 26);
        text[bytes++] = '\0';
    }
    if (!p3s_define(P3S_REC_SITE, &head, sizeof head, text, bytes))
        return;
    p3s_phase_site(sites++, head.key);
    TELL("S %" PRIu64 " %u %zu\n", head.key, head.frames, bytes);
}

static void define_comm(struct input *in)
{
    int32_t members = (int32_t)byte(in) % SIZE, d = (int32_t)byte(in) % 4;
    static const char name[] = "MPI_Comm_dup";
    int32_t head[6] = {(int32_t)comms, (int32_t)comms - 1, byte(in) & 1, members, d, 12};
    int32_t tail[SIZE + 9 + 3];
    int n = 0;
    for (int i = 0; i < members; i++)
        tail[n++] = (int32_t)byte(in) % (SIZE + 1) - 1;
    for (int i = 0; i < 3 * d; i++)
        tail[n++] = (int32_t)number(in);
    memcpy(tail + n, name, 12);
    if (!p3s_define(P3S_REC_COMM, head, sizeof head, tail, sizeof *tail * (size_t)n + 12))
        return;
    comms++;
    TELL("O %d %d %d %d %d", head[0], head[1], head[2], members, d);
    for (int i = 0; i < n; i++)
        TELL(" %d", tail[i]);
    TELL("\n");
}

static void define_window(struct input *in)
{
    int32_t head[3] = {(int32_t)windows_made, (int32_t)one_of(in, comms + 1) - 1,
                       (int32_t)(1 + byte(in) % 3)};
    if (!p3s_define(P3S_REC_WINDOW, head, sizeof head, "MPI_Win_create", 14))
        return;
    windows_made++;
    TELL("W %d %d %d\n", head[0], head[1], head[2]);
}

static void define_numbers(struct input *in)
{
    uint32_t head[2] = {lists + 1, byte(in)};
    int64_t list[256];
    if (byte(in) > 250)
        head[1] = 0;
    for (uint32_t i = 0; i < head[1]; i++)
        list[i] = number(in);
    if (!p3s_define(P3S_REC_NUMBERS, head, sizeof head, list, sizeof *list * head[1]))
        return;
    lists++;
    TELL("N %u", head[0]);
    for (uint32_t i = 0; i < head[1]; i++)
        TELL(" %" PRId64, list[i]);
    TELL("\n");
}

static struct p3s_call some_call(struct input *in)
{
    uint32_t how = byte(in);
    struct p3s_call c = {.op = one_of(in, P3S_OP_COUNT), .site = one_of(in, sites),
                         .comm = (int32_t)one_of(in, comms + 1) - 1,
                         .peer = (int32_t)byte(in) % (SIZE + 3) - 3, .tag = (int32_t)number(in),
                         .root = P3S_NONE, .bytes = some(in, 63), .elem_bytes = 1,
                         .window = P3S_NONE};
    if (how & 1)
        c.root = (int32_t)byte(in) % (SIZE + 3) - 3;
    if (how & 2)
        c.count = some(in, 63);
    if (how & 4)
        c.elem_bytes = (uint32_t)number(in);
    if (how & 8)
        c.thread = (uint32_t)some(in, 31), c.depth = (uint32_t)number(in);
    if (how & 16)
        c.window = (int32_t)one_of(in, windows_made + 1) - 1;
    if (how & 32)
        c.team = (uint32_t)number(in);
    if (how & 64)
        c.numbers = one_of(in, lists + 1);
    if (how & 128)
        c.block = (uint32_t)number(in), c.memory = byte(in) % 4;
    return c;
}

static void tell_event(char kind, const struct p3s_call *c, int64_t start, int64_t elapsed,
                       int64_t work, const uint64_t *counter)
{
    TELL("%c %u %u %d %d %d %d %" PRId64 " %" PRId64 " %u %u %u %d %u %u %u %u %" PRId64
         " %" PRId64 " %" PRId64, kind, c->op, c->site, c->comm, c->peer, c->tag, c->root, c->bytes,
         c->count, c->elem_bytes, c->thread, c->depth, c->window, c->team, c->numbers, c->block,
         c->memory, start, elapsed, work);
    for (uint32_t i = 0; i < p3s_header->counters; i++)
        TELL(" %" PRIu64, counter[i]);
    TELL("\n");
}

static void put_event(const struct p3s_call *c, struct input *in)
{
    uint64_t counter[P3S_MAX_COUNTERS] = {0};
    int64_t gap = some(in, 40), elapsed = some(in, 44), work = some(in, 44);
    for (uint32_t i = 0; i < p3s_header->counters; i++)
        counter[i] = (uint64_t)some(in, 63);
    int64_t start = now + (byte(in) == 255 ? -gap / 2 : gap);
    bool recorded = p3s_active && !p3s_header->paused;
    uint64_t before = counted, event = p3s_put_event(c, start, elapsed, work, counter);
    now = start + elapsed;
    if (event != P3S_NO_EVENT)
        tell_event('E', c, start, elapsed, work, counter);
    else if (counted > before)
        tell_event('C', c, start, elapsed, work, counter);
    else if (recorded && !stopped)
        abort();                /* neither stored nor counted, and nothing said */
}

static void put_threads(struct input *in)
{
    uint64_t event = event_count - 1 - one_of(in, event_count < 4 ? (uint32_t)event_count : 4);
    struct p3s_segment segment;
    uint64_t *value = (uint64_t *)&segment;
    for (size_t i = 0; i < P3S_SEGMENT_NUMBERS; i++)
        value[i] = (uint64_t)some(in, 40);
    bool there = p3s_active && (segment.regions || segment.others_ns);
    p3s_put_threads(event, &segment);
    if (!there || stopped)
        return;
    TELL("T %" PRIu64, event);
    for (size_t i = 0; i < P3S_SEGMENT_NUMBERS; i++)
        TELL(" %" PRIu64, value[i]);
    TELL("\n");
}

static void step(struct input *in, struct p3s_call *last)
{
    uint32_t what = byte(in) % 24;
    uint64_t event = event_count ? (uint64_t)some(in, 20) % event_count : 0;
    if (what < 6) {
        put_event(last, in);
    } else if (what < 11) {
        *last = some_call(in);
        put_event(last, in);
    } else if (what == 11) {    /* enough to fill chunks */
        for (uint32_t n = byte(in) * 4; n; n--)
            put_event(last, in);
    } else if (what == 12) {    /* calls that are never the same */
        for (uint32_t n = byte(in) * 2; n; n--) {
            last->tag = (int32_t)((uint32_t)last->tag + 1);
            put_event(last, in);
        }
    } else if (what == 13) {
        define_site(in);
    } else if (what == 14) {
        define_comm(in);
    } else if (what == 15) {
        define_window(in);
    } else if (what == 16) {
        define_numbers(in);
    } else if (what == 17) {
        p3s_header->paused = byte(in) & 1;
    } else if (event_count && what < 20) {
        uint64_t back = event ? (uint64_t)some(in, 20) % (event + 1) : 0;
        bool cancelled = byte(in) & 1, there = p3s_active;
        p3s_put_done(event, event - back, cancelled);
        if (there && !stopped)
            TELL("D %" PRIu64 " %" PRIu64 " %d\n", event, event - back, cancelled);
    } else if (event_count && what == 20) {
        int source = (int)(byte(in) % (SIZE + 3)) - 3, tag = (int)number(in);
        int64_t bytes = some(in, 63);
        bool there = p3s_active;
        p3s_put_resolved(event, source, tag, bytes);
        if (there && !stopped)
            TELL("R %" PRIu64 " %d %d %" PRId64 "\n", event, source, tag, bytes);
    } else if (event_count && what == 21) {
        int64_t offset = some(in, 63), span = some(in, 63);
        bool there = p3s_active;
        p3s_put_access(event, offset, span);
        if (there && !stopped)
            TELL("A %" PRIu64 " %" PRId64 " %" PRId64 "\n", event, offset, span);
    } else if (event_count && what == 22) {
        put_threads(in);
    } else {
        p3s_header->failed_polls++;
    }
}

static struct p3s_header facts_of(struct input *in)
{
    struct p3s_header facts = {.rank = 3, .size = SIZE, .init_monotonic_ns = 1, .family = "fuzz"};
    uint32_t how = byte(in);
    facts.counters = how % (P3S_MAX_COUNTERS + 1);
    facts.work_source = 1 + byte(in) % 3;
    for (uint32_t i = 0; i < facts.counters; i++)
        snprintf(facts.counter_names[i], sizeof facts.counter_names[i], "counter %u", i);
    facts.limit_bytes = how & 16 ? 4096u * byte(in) : 0;
    disk_left = how & 32 ? 1 + byte(in) % 32 : 0;
    memory_left = how & 64 ? 1 + byte(in) % 16 : 0;
    return facts;
}

static char place[512];         /* where captures are that nobody keeps */

static void leave(void) { rmdir(place); }

/* Make the folder of an input. */
static const char *folder(void)
{
    static char path[512];
    static unsigned inputs;
    const char *keep = getenv("P3S_FUZZ_KEEP");
    if (keep) {
        snprintf(path, sizeof path, "%s/%u", keep, inputs++);
        mkdir(path, 0777);
        return path;
    }
    if (!*place) {
        snprintf(place, sizeof place, "%s/p3s-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        if (!mkdtemp(place) || atexit(leave))
            abort();
    }
    return place;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size}, *in = &input;
    struct p3s_header facts = facts_of(in);
    const char *where = folder();
    bool keep = getenv("P3S_FUZZ_KEEP") != NULL;
    char path[600];
    make_plan(in);
    p3s_work_source = (int)facts.work_source;
    snprintf(path, sizeof path, "%s/written.txt", where);
    written = keep ? fopen(path, "w") : NULL;
    uint32_t end = byte(in);
    if (p3s_store_open(where, &facts)) {
        TELL("H %u %u\n", facts.counters, facts.work_source);
        p3s_active = 1;
        define_site(in);
        define_comm(in);
        struct p3s_call last = some_call(in);
        for (int i = 0; i < MOST_STEPS && in->at < in->end && !stopped; i++)
            step(in, &last);
        if (end >= 64)          /* else it is killed here */
            p3s_store_close();
        p3s_active = 0;
        TELL("%c %d %d\n", end < 64 ? 'K' : 'F', (p3s_header->flags & P3S_FLAG_STOPPED) != 0,
             limited);
    }
    if (written)
        fclose(written);
    forget_everything();
    if (!keep) {
        snprintf(path, sizeof path, "%s/rank-000003.p3t", where);
        unlink(path);
        snprintf(path, sizeof path, "%s/warned", where);
        unlink(path);
    }
    return 0;
}
