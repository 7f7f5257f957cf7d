/* The capture file: a header page, then chunks, each mapped MAP_SHARED while it is written. What
 * has been stored belongs to the kernel, so a killed rank loses nothing; length and checksum of
 * a chunk change in one store, so it is whole at every moment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "p3s_chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x4b433350u       /* "P3CK" */
#define BLOCK 4096u
#define LARGEST (64u * 1024)
#define BEGINNING (64u * 1024)   /* of the file: all that a small run needs */

_Static_assert(sizeof(struct p3s_chunk_header) == 64, "chunk header layout");
_Static_assert(offsetof(struct p3s_chunk_header, header_crc) == 44, "chunk header layout");
_Static_assert(offsetof(struct p3s_chunk_header, state) == 48, "chunk header layout");

static int file = -1;
static char file_path[4096];
static dev_t device;            /* what the descriptor must still be of */
static ino_t inode;
static uint64_t file_end;       /* behind the last chunk */
static uint64_t file_used;      /* behind what is used of it, once it is sealed */
static char *beginning;         /* the first bytes of the file stay mapped, reserved at once */
static uint64_t beginning_bytes;
static size_t page_bytes;
static uint32_t chunks, file_key;
static int my_rank;

/* ---- CRC-32 (the one of zlib), eight bytes at a time ---------------------------------------- */

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[0][crc_table[k - 1][i] & 255] ^ crc_table[k - 1][i] >> 8;
}

uint32_t p3s_crc(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    crc = ~crc;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        w ^= crc;
        crc = crc_table[7][w & 255] ^ crc_table[6][w >> 8 & 255] ^ crc_table[5][w >> 16 & 255] ^
              crc_table[4][w >> 24 & 255] ^ crc_table[3][w >> 32 & 255] ^
              crc_table[2][w >> 40 & 255] ^ crc_table[1][w >> 48 & 255] ^ crc_table[0][w >> 56];
    }
#endif
    for (; n; n--)
        crc = crc_table[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool is_ours(int fd)
{
    struct stat now;
    return fd >= 0 && fstat(fd, &now) == 0 && now.st_dev == device && now.st_ino == inode;
}

/* A program may close descriptors it does not own, and be given our number for a file of its own:
 * that must be neither grown, nor mapped, nor cut. */
static int have_file(void)
{
    if (file < 0 || is_ours(file))
        return file < 0 ? EBADF : 0;
    file = open(file_path, O_RDWR | O_CLOEXEC);
    if (is_ours(file))
        return 0;
    if (file >= 0)
        close(file);
    file = -1;
    return EBADF;
}

void p3s_signals_hold(struct p3s_signals *s)
{
    static const int numbers[2] = {SIGXFSZ, SIGPIPE};
    sigset_t waiting;
    sigemptyset(&s->ours);
    sigpending(&waiting);
    for (int i = 0; i < 2; i++)
        if (!sigismember(&waiting, numbers[i])) /* else it is the program's own */
            sigaddset(&s->ours, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &s->ours, &s->before);
}

void p3s_signals_drop(struct p3s_signals *s)
{
    struct timespec now = {0, 0};
    while (sigtimedwait(&s->ours, NULL, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}

/* Reserves blocks now: a full disk must be an error here, not a SIGBUS at a later store. */
static int reserve(uint64_t at, size_t bytes)
{
    struct p3s_signals signals;
    p3s_signals_hold(&signals);
    int error = posix_fallocate(file, (off_t)at, (off_t)bytes);
    p3s_signals_drop(&signals);
    return error;
}

/* ---- mappings, and files that are cut under them ---------------------------------------------- */

/* Nine open chunks, those of calls that are only counted, and the beginning. */
#define MOST_MAPPED 256

static struct { char *from; size_t bytes; } mapped[MOST_MAPPED];
static struct sigaction bus_before;
static volatile sig_atomic_t cut;

/* A store behind the end of a file that was cut, or whose blocks the disk has not got after all:
 * memory takes the place of the mapping. Any other SIGBUS goes where it would have gone. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    int error = errno;
    const char *at = info->si_addr;
    (void)context;
    for (int i = 0; info->si_code > 0 && i < MOST_MAPPED; i++)
        if (at >= mapped[i].from && at < mapped[i].from + mapped[i].bytes &&
            mmap(mapped[i].from, mapped[i].bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            cut = 1;
            errno = error;
            return;
        }
    sigaction(number, &bus_before, NULL);
    if (info->si_code <= 0)     /* nothing that happens again by itself */
        raise(number);
    errno = error;
}

static void watch_file(void)
{
    struct sigaction ours = {.sa_sigaction = on_bus,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, &bus_before);
}

static void watch_no_more(void)
{
    struct sigaction now;
    if (!sigaction(SIGBUS, NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus)
        sigaction(SIGBUS, &bus_before, NULL);
}

/* Map file bytes; chunks begin at multiples of BLOCK, mappings at multiples of a page. */
static void *map(uint64_t at, size_t bytes)
{
    uint64_t from = at / page_bytes * page_bytes;
    int place = 0;
    while (place < MOST_MAPPED && mapped[place].bytes)
        place++;
    errno = ENOMEM;
    if (place == MOST_MAPPED)
        return NULL;
    bytes += (size_t)(at - from);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file,
                   (off_t)from);
    if (p == MAP_FAILED)
        return NULL;
    mapped[place].from = p;
    mapped[place].bytes = bytes;
    return (char *)p + (at - from);
}

static void unmap(const void *p)
{
    for (int i = 0; i < MOST_MAPPED; i++)
        if ((uintptr_t)p - (uintptr_t)mapped[i].from < mapped[i].bytes) {
            munmap(mapped[i].from, mapped[i].bytes);
            mapped[i].bytes = 0;
            return;
        }
}

int p3s_file_open(const char *path, size_t header_bytes, void **header)
{
    if (file >= 0)
        return EBUSY;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    make_crc_table();
    file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (file < 0)
        return errno;
    struct stat facts;
    int error = fstat(file, &facts) ? errno : 0;
    device = facts.st_dev;
    inode = facts.st_ino;
    snprintf(file_path, sizeof file_path, "%s", path);
    /* Where there is little room left the header alone may still fit. */
    beginning_bytes = BEGINNING;
    if (!error && (header_bytes > BEGINNING || reserve(0, BEGINNING)))
        error = reserve(0, beginning_bytes = header_bytes);
    if (!error && !(*header = beginning = map(0, beginning_bytes)))
        error = errno;
    if (error)
        p3s_file_drop(path);
    else
        watch_file();
    file_end = file_used = header_bytes;
    return error;
}

void p3s_file_owner(int rank, uint32_t key)
{
    my_rank = rank;
    file_key = key;
}

void p3s_file_drop(const char *path)
{
    watch_no_more();
    close(file);
    file = -1;
    unlink(path);
}

void p3s_file_close(void)
{
    watch_no_more();
    if (have_file() != 0)
        return;
    if (!cut && ftruncate(file, (off_t)file_used) != 0) {
        /* The unused tail stays; it reads as nothing. */
    }
    close(file);
    file = -1;
}

uint32_t p3s_file_chunks(void) { return chunks; }

uint64_t p3s_file_bytes(void) { return file_end; }

/* ---- chunks ---------------------------------------------------------------------------------- */

void p3s_chunk_seal(struct p3s_chunk *c)
{
    if (!c->at)
        return;
    size_t bytes = c->at->capacity_bytes;
    c->at->sealed = 1;
    if (c->offset + bytes == file_end)
        file_used = c->offset + sizeof *c->at + c->used;
    if (c->offset + bytes > beginning_bytes)
        unmap(c->at);
    c->at = NULL;
    c->room = c->used = 0;
}

size_t p3s_chunk_size(const struct p3s_chunk *c)
{
    size_t bytes = c->written / 2 / BLOCK * BLOCK;      /* small runs make small files */
    return bytes < BLOCK ? BLOCK : bytes > LARGEST ? LARGEST : bytes;
}

int p3s_chunk_next(struct p3s_chunk *c, int kind, uint32_t columns, uint64_t first,
                   int64_t base_ns, size_t need)
{
    size_t bytes = p3s_chunk_size(c);
    while (bytes < need + sizeof(struct p3s_chunk_header))
        bytes += BLOCK;
    p3s_chunk_seal(c);
    struct p3s_chunk_header *h = NULL;
    if (cut)
        return ESTALE;
    if (file_end + bytes <= beginning_bytes) {
        h = (void *)(beginning + file_end);
    } else {
        int error = have_file();
        if (!error)
            error = reserve(file_end, bytes);
        if (error || !(h = map(file_end, bytes)))
            return error ? error : errno;
    }
    h->kind = (uint16_t)kind;
    h->version = (uint16_t)(1 + (kind >> 16));
    h->rank = my_rank;
    h->sequence = chunks;
    h->capacity_bytes = (uint32_t)bytes;
    h->columns = columns;
    h->first = first;
    h->base_ns = base_ns;
    h->file_key = file_key;
    uint32_t magic = MAGIC;
    h->header_crc = p3s_crc(p3s_crc(0, &magic, 4), (char *)h + 4, 40);
    /* The magic comes last: a chunk without it is unused space. */
    __atomic_store_n(&h->magic, magic, __ATOMIC_RELEASE);
    c->at = h;
    c->payload = (char *)(h + 1);
    c->room = (uint32_t)(bytes - sizeof *h);
    c->used = c->crc = 0;
    c->offset = file_end;
    c->written += bytes;
    file_end = file_used = file_end + bytes;
    chunks++;
    return 0;
}
