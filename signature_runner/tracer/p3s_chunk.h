/* The capture file as chunks: docs/capture-format.md. Bytes only; what they mean is p3s_store.c. */
#ifndef P3S_CHUNK_H
#define P3S_CHUNK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    P3S_CHUNK_DEFS = 1, P3S_CHUNK_EVENTS = 2, P3S_CHUNK_DONE = 3, P3S_CHUNK_RESOLVED = 4,
    P3S_CHUNK_COUNTS = 5, P3S_CHUNK_END = 6, P3S_CHUNK_PHASES = 7, P3S_CHUNK_THREADS = 8,
    P3S_CHUNK_ACCESSES = 12,
    P3S_CHUNK_VERSION_2 = 0x10000       /* added to a kind */
};

struct p3s_chunk_header {
    uint32_t magic;
    uint16_t kind, version;
    int32_t rank;
    uint32_t sequence, capacity_bytes, columns;
    uint64_t first;
    int64_t base_ns;
    uint32_t file_key, header_crc;
    uint64_t state;             /* used payload bytes | CRC-32 of them << 32, stored at once */
    uint32_t count, sealed;
};

struct p3s_chunk {              /* the open chunk of one kind; at is NULL if there is none */
    struct p3s_chunk_header *at;
    char *payload;
    uint32_t room, used, crc;
    uint64_t offset, written;   /* of this chunk in the file; bytes of all chunks of the kind */
};

/* Around what the tracer itself writes: past RLIMIT_FSIZE, or into a pipe that nobody reads, the
 * kernel also sends a signal that would end the program. */
struct p3s_signals { sigset_t ours, before; };
void p3s_signals_hold(struct p3s_signals *s);
void p3s_signals_drop(struct p3s_signals *s);

uint32_t p3s_crc(uint32_t crc, const void *bytes, size_t n);

/* Open the file of a rank and map its first page; errno-like code, 0 is good. */
int p3s_file_open(const char *path, size_t header_bytes, void **header);
void p3s_file_owner(int rank, uint32_t key);
/* Cut the file behind what its last chunk uses and close it. */
void p3s_file_close(void);
void p3s_file_drop(const char *path);
uint32_t p3s_file_chunks(void);
uint64_t p3s_file_bytes(void);

/* Seal the open chunk of this kind and begin another that has room for need bytes. */
int p3s_chunk_next(struct p3s_chunk *c, int kind, uint32_t columns, uint64_t first,
                   int64_t base_ns, size_t need);
/* Bytes of the next chunk of a kind, if its rows are short. */
size_t p3s_chunk_size(const struct p3s_chunk *c);
void p3s_chunk_seal(struct p3s_chunk *c);

static inline bool p3s_chunk_fits(const struct p3s_chunk *c, size_t need)
{
    return c->room - c->used >= need;
}

/* What lies between used and end becomes one more row: visible at once or not at all. */
static inline void p3s_chunk_commit(struct p3s_chunk *c, const char *end)
{
    char *from = c->payload + c->used;
    c->crc = p3s_crc(c->crc, from, (size_t)(end - from));
    c->used = (uint32_t)(end - c->payload);
    __atomic_store_n(&c->at->state, (uint64_t)c->crc << 32 | c->used, __ATOMIC_RELEASE);
    c->at->count++;
}

#endif
