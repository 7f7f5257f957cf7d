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

/* The first byte past a number that begins here, or past one character that is none. */
static const char *word_end(const char *c)
{
    const char *end = c + 1;
    while (isdigit((unsigned char)*c) && isdigit((unsigned char)*end))
        end++;
    return end;
}

void p3s_file_keys(const char *name, uint64_t keys[2])
{
    uint64_t hash = P3S_HASH_BEGIN;
    for (const char *c = p3s_base_name(name), *end; *c; c = end) {
        end = word_end(c);
        if (isdigit((unsigned char)*c) && strtol(c, NULL, 10) == p3s_world_rank)
            hash = p3s_hash_more(hash, "#", 1);
        else
            hash = p3s_hash_more(hash, c, (size_t)(end - c));
    }
    keys[0] = p3s_hash_text(0, name, 0);
    keys[1] = p3s_mix(p3s_mix(hash));
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

/* The window of a regular file; -1 if it is not to be recorded. Needs p3s_lock. */
static int window_of(int fd)
{
    static char name[4096];     /* not on the stack: it may be small */
    char link[64];
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
    uintptr_t window = (uintptr_t)p3s_map_get(&known, keys[0]);
    if (!window) {
        static const char made[] = "POSIX_open";
        int32_t head[3] = {p3s_next_window(), P3S_NONE, 3};
        p3s_define(P3S_REC_WINDOW, head, sizeof head, made, strlen(made));
        p3s_file_define(head[0], 0, keys, "");
        window = (uintptr_t)head[0] + 1;
        p3s_map_put(&known, keys[0], (void *)window);
    }
    return (int)window - 1;
}

bool p3s_file_wanted(int fd, int *file)
{
    /* What the launcher made of the standard descriptors is none of the program's files. */
    if (fd <= STDERR_FILENO || fd >= MOST_DESCRIPTORS)
        return false;
    int32_t now = descriptors[fd];
    *file = now < KNOWN ? -1 : now - KNOWN;
    return now != OTHER;
}

int p3s_file_of(int fd)
{
    int file = -1;
    if (!p3s_file_wanted(fd, &file) || file >= 0)
        return file;
    p3s_hold();
    file = window_of(fd);
    p3s_let_go();
    descriptors[fd] = file < 0 ? OTHER : KNOWN + file;
    return file;
}

void p3s_file_forget(int fd)
{
    if (fd >= 0 && fd < MOST_DESCRIPTORS)
        descriptors[fd] = UNKNOWN;
}
