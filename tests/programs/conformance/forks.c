/* Ranks that fork: children that exit, leave at once, become another program, or call MPI as if
 * they were the parent add nothing to what that records. */
#include "conform.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(int how)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (how == 0)
            _exit(3);
        if (how == 1)
            execl("/bin/sh", "sh", "-c", "exit 4", (char *)NULL);
        if (how == 2)
            raise(SIGKILL);
        if (how == 3) {         /* not allowed, but it happens */
            for (int i = 0; i < 2000; i++)
                MPI_Barrier(MPI_COMM_SELF);
            _exit(6);
        }
        _exit(9);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

int main(void)
{
    int value;
    MPI_Request request;
    begin();
    for (int i = 0; i < 8; i++) {
        DO(Irecv, 4, &value, 1, MPI_INT, (me + p - 1) % p, i, MPI_COMM_WORLD, &request);
        say("child %d", child(i % 4));
        DO(Send, 4, &me, 1, MPI_INT, (me + 1) % p, i, MPI_COMM_WORLD);
        DONE(Wait, 1, &request, MPI_STATUS_IGNORE);
        say("value %d", value);
    }
    say("shell %d", WEXITSTATUS(system("exit 5")));
    DO(Barrier, 0, MPI_COMM_WORLD);
    end();
    return 0;
}
