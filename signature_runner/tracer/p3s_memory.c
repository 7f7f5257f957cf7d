/* How much memory the process has in use, and how often it lost its core to another one. */
#include "p3s_inside.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t preempted_before;

/* A line of /proc/self/status in bytes, 0 if it is not there. */
static uint64_t line_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* The peak is that of this program: getrusage would give that of the one it was exec'd from. */
static void resident(uint64_t *now, uint64_t *peak)
{
    static char text[16384];    /* not on the stack: it may be small */
    size_t used = 0;
    ssize_t got;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while (used < sizeof text - 1 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)got;
    close(fd);
    text[used] = '\0';
    *now = line_of(text, "\nVmRSS:");
    *peak = line_of(text, "\nVmHWM:");
}

uint64_t p3s_preempted(void)
{
    struct rusage usage;
#ifdef RUSAGE_THREAD
    int who = RUSAGE_THREAD;
#else
    int who = RUSAGE_SELF;
#endif
    return getrusage(who, &usage) ? 0 : (uint64_t)usage.ru_nivcsw;
}

/* In an emulator these are the emulator's. */
static bool known(void)
{
    return p3s_header && !p3s_instructions;
}

void p3s_memory_begin(void)
{
    uint64_t peak;
    if (!known())
        return;
    resident(&p3s_header->resident_init, &peak);
    preempted_before = p3s_preempted();
}

void p3s_memory_end(void)
{
    uint64_t now, before = preempted_before;
    if (!known())
        return;
    resident(&now, &p3s_header->resident_peak);
    uint64_t since = p3s_preempted();
    p3s_header->preempted = since > before ? since - before : 0;
}
