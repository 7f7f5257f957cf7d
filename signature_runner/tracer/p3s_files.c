/* Which files there are: those behind descriptors, and what names tell. */
#include "p3s_posix.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 4096

enum { UNKNOWN = 0, OTHER = 1, KNOWN = 2 };     /* KNOWN and above: 2 + window */

static int32_t descriptors[MOST_DESCRIPTORS];
static struct p3s_map known;            /* hash of the name -> window + 1; needs p3s_lock */

void p3s_file_keys(const char *name, uint64_t keys[2])
{
    char plain[4096];
    size_t n = 0;
    const char *slash = strrchr(name, '/');
    for (const char *c = slash ? slash + 1 : name; *c && n < sizeof plain - 1;) {
        char *end;
        if (isdigit((unsigned char)*c) && strtol(c, &end, 10) == p3s_world_rank) {
            plain[n++] = '#';
            c = end;
        } else if (isdigit((unsigned char)*c)) {
            while (isdigit((unsigned char)*c) && n < sizeof plain - 1)
                plain[n++] = *c++;
        } else {
            plain[n++] = *c++;
        }
    }
    plain[n] = '\0';
    keys[0] = p3s_hash_text(0, name, 0);
    keys[1] = p3s_hash_text(0, plain, 0);
}

/* Needs p3s_lock. */
void p3s_file_define(int window, uint32_t flags, const uint64_t keys[2], const char *text)
{
    struct { int32_t window; uint32_t flags; uint64_t keys[2]; } head =
        {window, flags, {keys[0], keys[1]}};
    p3s_define(P3S_REC_FILE, &head, sizeof head, text, strlen(text));
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Is it code, or no file of a file system that keeps data? */
static bool no_data(const char *name)
{
    static const char *const code[] = {".py", ".pyc", ".so", ".pth", ".mod"};
    static const char *const places[] = {"/dev/", "/proc/", "/sys/"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!strncmp(name, places[i], strlen(places[i])))
            return true;
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        if (ends_with(name, code[i]))
            return true;
    return strstr(name, ".so.") != NULL;
}

/* The window of a regular file; -1 if it is not to be recorded. */
static int window_of(int fd)
{
    char link[64], name[4096];
    struct stat s;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode))
        return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0)
        n = snprintf(name, sizeof name, "%ju:%ju", (uintmax_t)s.st_dev, (uintmax_t)s.st_ino);
    name[n] = '\0';
    if (no_data(name))
        return -1;
    uint64_t keys[2];
    p3s_file_keys(name, keys);
    p3s_hold();
    uintptr_t window = (uintptr_t)p3s_map_get(&known, keys[0]);
    if (!window) {
        static const char made[] = "POSIX_open";
        int32_t head[3] = {p3s_next_window(), P3S_NONE, 3};
        p3s_define(P3S_REC_WINDOW, head, sizeof head, made, strlen(made));
        p3s_file_define(head[0], 0, keys, "");
        window = (uintptr_t)head[0] + 1;
        p3s_map_put(&known, keys[0], (void *)window);
    }
    p3s_let_go();
    return (int)window - 1;
}

int p3s_file_of(int fd)
{
    /* What the launcher made of the standard descriptors is none of the program's files. */
    if (fd <= STDERR_FILENO || fd >= MOST_DESCRIPTORS)
        return -1;
    int32_t now = descriptors[fd];
    if (__builtin_expect(now == UNKNOWN, 0)) {
        int window = window_of(fd);
        descriptors[fd] = now = window < 0 ? OTHER : KNOWN + window;
    }
    return now - KNOWN;
}

void p3s_file_forget(int fd)
{
    if (fd >= 0 && fd < MOST_DESCRIPTORS)
        descriptors[fd] = UNKNOWN;
}
