/* Files that the program reads and writes through the C library. Included by p3s_posix.c and
 * p3s_files.c. */
#ifndef P3S_POSIX_H
#define P3S_POSIX_H

#include "p3s_inside.h"

/* One call of the C library on a file, from its wrapper's entry to its return. */
struct p3s_io {
    void *ra, *fa;
    uint32_t op;
    int fd, file;
    bool truncates;             /* opening drops what is in the file */
    bool joins, light;          /* one more of the pending calls; the work clock is not read */
    int64_t t0_ns, clock;
    uint64_t counter[P3S_MAX_COUNTERS];
};

/* Is a call on this descriptor recorded? */
bool p3s_io_enter(struct p3s_io *i, uint32_t op, int fd, void *ra, void *fa);
/* After it: bytes moved, less than 0 if it failed. */
void p3s_io_leave(struct p3s_io *i, int64_t bytes);
/* Before that, of one that says where. */
void p3s_io_at(int64_t offset, int64_t bytes);
/* Opening: the file is known afterwards only. */
bool p3s_io_opening(struct p3s_io *i, uint32_t op, bool truncates, void *ra, void *fa);
void p3s_io_opened(struct p3s_io *i, int fd);

/* A number for a new file; needs p3s_lock. */
int p3s_next_window(void);
/* May calls on a descriptor be recorded? Into *file the number of its window, -1 if that is not
 * known yet. Safe everywhere. */
bool p3s_file_wanted(int fd, int *file);
/* Number of the window of a descriptor's file, -1 if it is none that is recorded. */
int p3s_file_of(int fd);
void p3s_file_forget(int fd);
/* Hash of a file's path; and of its name with this rank's number in it taken out. */
void p3s_file_keys(const char *name, uint64_t keys[2]);
/* A record of a file: text is what is known of it, lines name=value. */
void p3s_file_define(int window, uint32_t flags, const uint64_t keys[2], const char *text);

#endif
