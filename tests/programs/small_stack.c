/* Prints how much stack a thread needed that calls MPI from a place where nobody has before. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { BYTES = 1024 * 1024 };

static void *thread(void *unused)
{
    int flag;
    (void)unused;
    MPI_Barrier(MPI_COMM_SELF);
    MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    return NULL;
}

int main(void)
{
    int level, at = 0;
    pthread_t one;
    pthread_attr_t how;
    char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Barrier(MPI_COMM_SELF);
    pthread_attr_init(&how);
    if (stack == MAP_FAILED || pthread_attr_setstack(&how, stack, BYTES) != 0 ||
        pthread_create(&one, &how, thread, NULL) != 0)
        return 2;
    pthread_join(one, NULL);
    while (at < BYTES && !stack[at])
        at++;
    printf("%d\n", BYTES - at);
    MPI_Finalize();
    return 0;
}
