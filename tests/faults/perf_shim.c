/* A processor that counts, for LD_PRELOAD on machines without one: perf_event_open(2) succeeds, and
 * reads of its descriptors give a recorded stream. Instructions go on by 1,000,200 from the first
 * read to the second, as a loop of a million between them does; by COST in the next 200; by EACH then.
 * Half of all time the counter is on the processor (multiplexed). Others go on by 3000 (task-clock),
 * 10000 (cycles), 50 (llc-misses) and 20 (dtlb-misses) with each read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64, COST = 40, EACH = 5000 };

static struct counter { ino_t file; uint32_t type; uint64_t config, format, reads, value; ino_t leader; }
    known[MOST];
static int counters;

static ino_t file_of(int fd)
{
    struct stat facts;
    return fstat(fd, &facts) ? 0 : facts.st_ino;
}

long syscall(long number, ...)
{
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number != SYS_perf_event_open)
        return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3],
                                                                  a[4], a[5]);
    const struct perf_event_attr *asked = (const struct perf_event_attr *)a[0];
    int fd = memfd_create("counter", MFD_CLOEXEC), leader = (int)a[3];
    if (fd >= 0 && counters < MOST)
        known[counters++] = (struct counter){file_of(fd), asked->type, asked->config,
            asked->read_format, 0, 0, leader < 0 ? file_of(fd) : file_of(leader)};
    return fd;
}

static uint64_t step(struct counter *c)
{
    c->reads++;
    if (c->type == PERF_TYPE_SOFTWARE)
        return c->value += 3000;
    if (c->type == PERF_TYPE_HW_CACHE)
        return c->value += 20;
    if (c->config == PERF_COUNT_HW_CPU_CYCLES)
        return c->value += 10000;
    if (c->config == PERF_COUNT_HW_CACHE_MISSES)
        return c->value += 50;
    return c->value += c->reads == 1 ? 0 : c->reads == 2 ? 1000200 : c->reads <= 202 ? COST : EACH;
}

ssize_t read(int fd, void *into, size_t bytes)
{
    ino_t file = counters ? file_of(fd) : 0;
    uint64_t *out = into, n = 0;
    struct counter *own = NULL;
    for (int i = 0; file && i < counters; i++)
        if (known[i].file == file)
            own = &known[i];
    if (!own)
        return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(fd, into, bytes);
    if (!(own->format & PERF_FORMAT_GROUP)) {
        uint64_t all[] = {step(own) / 2, 2, 1};
        memcpy(into, all, sizeof all);
        return sizeof all;
    }
    for (int i = 0; i < counters; i++)
        if (known[i].leader == own->file)
            out[3 + n++] = step(&known[i]);
    out[0] = n;
    out[1] = out[2] = 1;
    return (ssize_t)(8 * (3 + n));
}
