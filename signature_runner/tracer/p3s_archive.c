/* In an archive linked into a program: what stands for the files that interpose functions of shared
 * libraries. Threads of OpenMP's runtime are not followed there. */
#ifdef P3S_ARCHIVE
#include "p3s_inside.h"
#include "p3s_team.h"

bool p3s_devices;

void p3s_device_look(void) {}

uint32_t p3s_device_memory(const void *sent, const void *received)
{
    (void)sent, (void)received;
    return 0;
}

uint32_t p3s_team_size(void) { return 1; }

bool p3s_openmp_there(void) { return p3s_ompt; }

void *p3s_openmp(const char *name)
{
    (void)name;
    return NULL;
}

const char *p3s_openmp_name(char *path, size_t bytes)
{
    (void)bytes;
    *path = '\0';
    return *p3s_ompt_version() ? p3s_ompt_version() : NULL;
}
#endif
