/* The trace file: a header page that stays mapped, then records appended through a moving
 * MAP_SHARED window. What has been stored belongs to the kernel, so a killed rank loses
 * nothing; the kind word is stored last, so a torn record reads as the end. */
#include "p3s_tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)512 * 1024)
#define ROUND8(n) (((n) + 7) & ~(size_t)7)

_Static_assert(sizeof(struct p3s_call) == 32, "CALL payload must stay 32 bytes");
_Static_assert(offsetof(struct p3s_header, init_realtime_ns) == 24, "header layout");
_Static_assert(offsetof(struct p3s_header, failed_polls) == 56, "header layout");
_Static_assert(offsetof(struct p3s_header, family) == 80, "header layout");
_Static_assert(offsetof(struct p3s_header, cpu_read_ns) == 160, "header layout");
_Static_assert(offsetof(struct p3s_header, abort_code) == 168, "header layout");

struct p3s_header *p3s_header;
uint64_t p3s_events;

static int file = -1;
static int my_rank;
static char directory[4000];
static char *window;                 /* mapped part of the file */
static size_t window_bytes, page_bytes;
static uint64_t window_at, position; /* file offsets */
static uint64_t checksum;            /* over the records so far */

void p3s_warn(const char *what, int error)
{
    /* One line per job: the rank that creates the marker speaks. */
    char path[4096];
    snprintf(path, sizeof path, "%s/warned", directory);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    else if (errno == EEXIST || my_rank != 0)
        return;
    fprintf(stderr, "p3s: warning: rank %d: %s in %s: %s; the program goes on, not traced\n",
            my_rank, what, directory, strerror(error));
}

/* Reserves blocks now: a full disk must be an error here, not a SIGBUS at a later store. */
static int reserve(uint64_t at, size_t bytes)
{
    sigset_t over, before;
    struct timespec now = {0, 0};
    /* Past RLIMIT_FSIZE the kernel also sends a signal that would end the program. */
    sigemptyset(&over);
    sigaddset(&over, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &over, &before);
    int error = posix_fallocate(file, (off_t)at, (off_t)bytes);
    if (error == EFBIG)
        sigtimedwait(&over, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static bool extend(size_t need)
{
    uint64_t at = position / page_bytes * page_bytes;
    size_t bytes = WINDOW_BYTES;
    while (bytes < need + (position - at) + 8)
        bytes *= 2;
    int error = reserve(at, bytes);
    void *mapped = MAP_FAILED;
    if (!error) {
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)at);
        error = mapped == MAP_FAILED ? errno : 0;
    }
    if (error) {
        p3s_active = 0;
        p3s_header->flags |= 1;      /* recording stopped early */
        p3s_warn("cannot extend the trace file", error);
        return false;
    }
    if (window)
        munmap(window, window_bytes);
    window = mapped;
    window_bytes = bytes;
    window_at = at;
    return true;
}

/* A sum over words and their places: a reader can form it for the whole file at once. */
static void add_to_checksum(const char *from, size_t bytes, uint64_t offset)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        checksum += p3s_mix(word + (offset + i) * 0x9e3779b97f4a7c15u);
    }
}

bool p3s_append(uint32_t kind, const void *head, size_t head_bytes, const void *tail,
                size_t tail_bytes)
{
    size_t payload = head_bytes + tail_bytes, total = 8 + ROUND8(payload);
    if (!p3s_header)
        return false;
    if (!window || position + total + 8 > window_at + window_bytes)
        if (!extend(total))
            return false;
    char *at = window + (position - window_at);
    memcpy(at + 8, head, head_bytes);
    if (tail_bytes)
        memcpy(at + 8 + head_bytes, tail, tail_bytes);
    *(uint32_t *)(at + 4) = (uint32_t)payload;
    __atomic_store_n((uint32_t *)at, kind, __ATOMIC_RELEASE);
    add_to_checksum(at, total, position);
    position += total;
    return true;
}

bool p3s_store_open(const char *dir, int rank, int size, int64_t init_monotonic_ns,
                    int64_t cpu_read_ns)
{
    char path[4096];
    struct timespec now, resolution;
    if (strlen(dir) >= sizeof directory)
        return false;
    strcpy(directory, dir);
    my_rank = rank;
    snprintf(path, sizeof path, "%s/rank-%06d.p3t", dir, rank);
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    if (file < 0) {
        /* EEXIST: another program of this run has this rank (a second MPI program, a spawned
         * one, or N programs of size 1); the reader sees it from the sizes. */
        if (errno != EEXIST)
            p3s_warn("cannot create the trace file", errno);
        return false;
    }
    int error = reserve(0, page_bytes);
    void *mapped = MAP_FAILED;
    if (!error) {
        mapped = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = mapped == MAP_FAILED ? errno : 0;
    }
    if (error) {
        p3s_warn("cannot write the trace file", error);
        close(file);
        unlink(path);
        return false;
    }
    struct p3s_header *h = mapped;
    h->version = 1;
    h->header_bytes = (uint32_t)page_bytes;
    h->rank = rank;
    h->size = size;
    clock_gettime(CLOCK_REALTIME, &now);
    h->init_realtime_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    h->init_monotonic_ns = init_monotonic_ns;
    clock_getres(CLOCK_THREAD_CPUTIME_ID, &resolution);
    h->cpu_resolution_ns = (int64_t)resolution.tv_sec * 1000000000 + resolution.tv_nsec;
    h->cpu_read_ns = cpu_read_ns;
    h->pid = getpid();
#ifdef OPEN_MPI
    strcpy(h->family, "openmpi");
#else
    strcpy(h->family, "mpich");
#endif
    gethostname(h->host, sizeof h->host - 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(h->magic, "P3STRACE", 8);
    p3s_header = h;
    position = page_bytes;
    if (extend(0))
        return true;
    p3s_header = NULL;
    return false;
}

void p3s_store_close(void)
{
    if (!p3s_header)
        return;
    /* Of the header, without what other threads and MPI_Abort may still change. */
    add_to_checksum((char *)p3s_header, offsetof(struct p3s_header, failed_polls), 0);
    size_t rest = offsetof(struct p3s_header, family);
    add_to_checksum((char *)p3s_header + rest, offsetof(struct p3s_header, abort_code) - rest,
                    rest);
    uint64_t end[2] = {p3s_events, checksum};
    p3s_append(P3S_REC_END, end, sizeof end, NULL, 0);
    if (window)
        munmap(window, window_bytes);
    window = NULL;
    munmap(p3s_header, page_bytes);
    p3s_header = NULL;
    if (ftruncate(file, (off_t)position) != 0) {
        /* The unused tail stays; it reads as the end all the same. */
    }
    close(file);
    file = -1;
}

/* ---- distinct calls ------------------------------------------------------------------------ */

static struct { struct p3s_call call; uint32_t number_plus_1; } *calls;
static size_t calls_mask, calls_used;
unsigned char p3s_op_known[P3S_OP_COUNT];

static uint64_t hash_call(const struct p3s_call *c)
{
    uint64_t w[4], x = 0;
    memcpy(w, c, sizeof w);
    for (int i = 0; i < 4; i++)
        x = p3s_mix(x ^ w[i]);
    return x;
}

static bool grow_calls(void)
{
    size_t bigger = calls ? 2 * (calls_mask + 1) : 1024;
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

void p3s_put_op(uint32_t op)
{
    if (!p3s_op_known[op] &&
        p3s_append(P3S_REC_OPNAME, &op, sizeof op, p3s_op_names[op], strlen(p3s_op_names[op])))
        p3s_op_known[op] = 1;
}

static int64_t call_number(const struct p3s_call *c)
{
    if ((!calls || 2 * calls_used > calls_mask) && !grow_calls())
        return -1;
    size_t at = hash_call(c) & calls_mask;
    for (; calls[at].number_plus_1; at = (at + 1) & calls_mask)
        if (!memcmp(&calls[at].call, c, sizeof *c))
            return calls[at].number_plus_1 - 1;
    if (!p3s_op_known[c->op])
        p3s_put_op(c->op);
    if (!p3s_append(P3S_REC_CALL, c, sizeof *c, NULL, 0))
        return -1;
    calls[at].call = *c;
    calls[at].number_plus_1 = (uint32_t)++calls_used;
    return (int64_t)calls_used - 1;
}

uint64_t p3s_put_event(const struct p3s_call *call, int64_t start_ns, int64_t elapsed_ns,
                       int64_t work_ns, uint32_t thread)
{
    struct { uint32_t call, thread; int64_t start, elapsed, work; } event;
    int64_t number = p3s_active ? call_number(call) : -1;
    if (number < 0)
        return p3s_events;
    event.call = (uint32_t)number;
    event.thread = thread;
    event.start = start_ns;
    event.elapsed = elapsed_ns;
    event.work = work_ns;
    if (p3s_append(P3S_REC_EVENT, &event, sizeof event, NULL, 0))
        p3s_events++;
    return p3s_events - 1;
}

void p3s_put_resolved(uint64_t ordinal, int source, int tag, int64_t bytes)
{
    struct { uint64_t ordinal; int32_t source, tag; int64_t bytes, reserved; } r = {
        ordinal, source, tag, bytes, 0};
    if (p3s_active)
        p3s_append(P3S_REC_RESOLVED, &r, sizeof r, NULL, 0);
}

/* ---- map ------------------------------------------------------------------------------------ */

struct p3s_node { uint64_t key; void *value; struct p3s_node *next; };

uint64_t p3s_mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

void *p3s_map_get(const struct p3s_map *m, uint64_t key)
{
    struct p3s_node *n = m->buckets ? m->buckets[p3s_mix(key) & m->mask] : NULL;
    while (n && n->key != key)
        n = n->next;
    return n ? n->value : NULL;
}

static void map_grow(struct p3s_map *m)
{
    size_t bigger = m->buckets ? 4 * (m->mask + 1) : 64;
    struct p3s_node **fresh = calloc(bigger, sizeof *fresh);
    if (!fresh)
        return;
    for (size_t i = 0; m->buckets && i <= m->mask; i++)
        for (struct p3s_node *n = m->buckets[i], *next; n; n = next) {
            next = n->next;
            n->next = fresh[p3s_mix(n->key) & (bigger - 1)];
            fresh[p3s_mix(n->key) & (bigger - 1)] = n;
        }
    free(m->buckets);
    m->buckets = fresh;
    m->mask = bigger - 1;
}

void *p3s_map_put(struct p3s_map *m, uint64_t key, void *value)
{
    if (!m->buckets || m->used > 2 * m->mask)
        map_grow(m);
    if (!m->buckets)
        return value;
    for (struct p3s_node *n = m->buckets[p3s_mix(key) & m->mask]; n; n = n->next)
        if (n->key == key) {
            void *old = n->value;
            n->value = value;
            return old;
        }
    struct p3s_node *n = malloc(sizeof *n);
    if (!n)
        return value;
    n->key = key;
    n->value = value;
    n->next = m->buckets[p3s_mix(key) & m->mask];
    m->buckets[p3s_mix(key) & m->mask] = n;
    m->used++;
    return NULL;
}

void *p3s_map_take(struct p3s_map *m, uint64_t key)
{
    if (!m->buckets)
        return NULL;
    for (struct p3s_node **n = &m->buckets[p3s_mix(key) & m->mask]; *n; n = &(*n)->next)
        if ((*n)->key == key) {
            struct p3s_node *found = *n;
            void *value = found->value;
            *n = found->next;
            free(found);
            m->used--;
            return value;
        }
    return NULL;
}
