/* Lets SMPI's Fortran layer reach the tracer: LD_PRELOADed into the simulator.
 *
 * mpi_x_ of the simulator's library calls MPI_X, the library's own: the one that the tracer puts
 * into every rank's copy of the program is not seen from there. Here is a MPI_X that comes before
 * the library's and goes on to that of the running rank, with the arguments as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#define MOST_ACTORS 65536
#define NAMES 2048

static void *const *own[MOST_ACTORS];   /* MPI_X of each rank's copy, in the order of NAMES */
static void *library[NAMES];

static const char *const name[] = {
#define CALL(x) "MPI_" #x,
#include "calls.h"
#undef CALL
};

static uint64_t rank(void)
{
    static long (*actor)(void);
    if (!actor)
        *(void **)&actor = dlsym(RTLD_DEFAULT, "sg_actor_self_get_pid");
    return actor ? (uint64_t)actor() % MOST_ACTORS : 0;
}

/* Called by each copy when it is loaded, by its own rank. */
void accuracy_register(void *const *calls) { own[rank()] = calls; }

__attribute__((used)) void *accuracy_next(uint64_t call)
{
    void *const *mine = own[rank()];
    if (mine)
        return mine[call];
    if (!library[call])
        library[call] = dlsym(RTLD_NEXT, name[call]);
    return library[call];
}

/* Registers of six arguments; further ones stay on the stack. No MPI call has floating ones. */
__asm__(".text\n"
        "accuracy_jump:\n"
        "push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n push %rax\n"
        "mov %r11, %rdi\n"
        "call accuracy_next@PLT\n"
        "mov %rax, %r11\n"
        "pop %rax\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n"
        "jmp *%r11\n"
        ".set accuracy_number, 0\n"
#define CALL(x)                                                                                  \
        ".globl MPI_" #x "\n.type MPI_" #x ", @function\n"                                       \
        "MPI_" #x ": mov $accuracy_number, %r11\n jmp accuracy_jump\n"                           \
        ".set accuracy_number, accuracy_number + 1\n"
#include "calls.h"
);
