/* An error handler that does not return: what is called after it is recorded as before, wherever
 * on the stack. */
#include "conform.h"

#include <setjmp.h>

static jmp_buf back;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    longjmp(back, 1);
}

__attribute__((noinline)) static void fail(int depth)
{
    volatile char room[200];
    room[0] = (char)depth;
    if (depth)
        fail(depth - 1);
    else
        MPI_Send(NULL, 0, MPI_INT, p + 1, 1, MPI_COMM_WORLD);
    room[1] = 0;
}

__attribute__((noinline)) static void work(int depth)
{
    volatile char room[150];
    room[0] = (char)depth;
    if (depth)
        work(depth - 1);
    else
        DO(Barrier, 0, MPI_COMM_SELF);
    room[1] = 0;
}

int main(void)
{
    static int jumps;
    MPI_Errhandler handler;
    begin();
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (volatile int i = 0; i < 20; i++) {
        if (!setjmp(back))
            fail(i % 7);
        else
            jumps++;
        for (volatile int depth = 0; depth < 10; depth++)
            work(depth);
    }
    say("jumps %d", jumps);
    MPI_Errhandler_free(&handler);
    end();
    return 0;
}
