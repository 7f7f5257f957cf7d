/* A script that starts the program may set LD_PRELOAD anew, which drops the tracer: what was started
 * so is written down beside the captures. Called between vfork and exec, so nothing is allocated. */
#include "p3s_inside.h"

#ifndef P3S_ARCHIVE

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

#define FUNCTIONS(X) X(execve) X(execv) X(execvp) X(execvpe) X(posix_spawn) X(posix_spawnp)
#define DECLARE(name) __typeof__(&name) f_##name;
static struct { FUNCTIONS(DECLARE) } real;
static const char *own_path, *directory;

#define LOOK_UP(name) real.f_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name);
__attribute__((constructor(102))) static void look_up(void)
{
    Dl_info self;
    FUNCTIONS(LOOK_UP)
    if (dladdr((void *)look_up, &self))
        own_path = self.dli_fname;
    directory = secure_getenv("P3S_TRACE_DIR");
}

static void look_at(const char *program, char *const *env)
{
    char path[4096];
    if (!own_path || !directory || p3s_header)
        return;
    for (; env && *env; env++)
        if (!strncmp(*env, "LD_PRELOAD=", 11) && strstr(*env, own_path))
            return;
    if (snprintf(path, sizeof path, "%s/preload-lost", directory) >= (int)sizeof path)
        return;
    int fd = open(path, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0666);
    int length = snprintf(path, sizeof path, "%s\n", program);
    if (fd >= 0 && length < (int)sizeof path && write(fd, path, (size_t)length) < 0) {
        /* It is a hint only. */
    }
    if (fd >= 0)
        close(fd);
}

P3S_EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
    look_at(path, env);
    return real.f_execve(path, argv, env);
}

P3S_EXPORT int execv(const char *path, char *const argv[])
{
    look_at(path, environ);
    return real.f_execv(path, argv);
}

P3S_EXPORT int execvp(const char *file, char *const argv[])
{
    look_at(file, environ);
    return real.f_execvp(file, argv);
}

P3S_EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
    look_at(file, env);
    return real.f_execvpe(file, argv, env);
}

#define SPAWNED(name)                                                                             \
    P3S_EXPORT int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,  \
                        const posix_spawnattr_t *attributes, char *const argv[],                  \
                        char *const env[])                                                        \
    {                                                                                             \
        look_at(path, env);                                                                       \
        return real.f_##name(pid, path, actions, attributes, argv, env);                          \
    }

SPAWNED(posix_spawn)
SPAWNED(posix_spawnp)

#endif
