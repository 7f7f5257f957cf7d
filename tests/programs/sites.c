/* MPI calls from many places that are hard to tell apart; each rank writes the place of every
 * call, in order, into places-RANK.txt. */
#include <alloca.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))
#define NO_TAIL_CALL __asm__ volatile("" ::: "memory")

static FILE *places, *depths;
/* 3000: more frames than a site can have */
static volatile int levels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 400, 3000, 1};
static volatile int sink;

static void at(const char *place) { fprintf(places, "%s\n", place); }

NOINLINE static void step(void)             /* everything goes through this one function */
{
    MPI_Barrier(MPI_COMM_SELF);
    NO_TAIL_CALL;
}

NOINLINE static void outer_step(void) { step(); NO_TAIL_CALL; }

/* callers of equal frame size: return address and stack pointer of the MPI call are equal */
NOINLINE static void one(void) { at("one"); outer_step(); NO_TAIL_CALL; }
NOINLINE static void two(void) { at("two"); outer_step(); NO_TAIL_CALL; }
NOINLINE static void three(void) { at("three"); outer_step(); NO_TAIL_CALL; }

NOINLINE static void between(void (*f)(void)) { f(); NO_TAIL_CALL; }

NOINLINE static void deep(const char *place) { at(place); step(); NO_TAIL_CALL; }
NOINLINE static void deeper(const char *place) { deep(place); NO_TAIL_CALL; }

/* stack of varying size above and below */
NOINLINE static void varying(int bytes)
{
    char *room = alloca((size_t)bytes);
    memset(room, 0, (size_t)bytes);
    sink += room[bytes - 1];
    at("varying");
    step();
    sink += room[0];
}

NOINLINE static void recurse(int level)
{
    if (level == 0) {
        at("recursion");
        step();
    } else {
        recurse(level - 1);
    }
    NO_TAIL_CALL;
}

/* from one place, so that only the depth differs */
NOINLINE static void recurse_to(int level) 
{
    fprintf(depths, "%d\n", level);
    recurse(level);
    NO_TAIL_CALL;
}

NOINLINE static void pong(int level);
NOINLINE static void ping(int level)
{
    if (level == 0) {
        at("mutual recursion");
        step();
    } else {
        pong(level - 1);
    }
    NO_TAIL_CALL;
}
NOINLINE static void pong(int level) { ping(level); NO_TAIL_CALL; }

static int compare(const void *a, const void *b)
{
    at("callback of qsort");
    step();
    return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv)
{
    char name[64];
    int rank, numbers[3] = {3, 1, 2};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "places-%06d.txt", rank);
    places = fopen(name, "w");
    snprintf(name, sizeof name, "depths-%06d.txt", rank);
    depths = fopen(name, "w");
    if (!places || !depths)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int turn = 0; turn < 50; turn++) {
        void (*order[3])(void) = {one, two, three};
        between(order[turn % 3]);
        between(order[(turn / 3) % 3]);
        deeper("a in the loop");
        deeper("b in the loop");
        varying(16 + 64 * (turn % 7));
        recurse_to(levels[turn % 12]);
        ping(1 + turn % 5);
    }
    ping(5);
    qsort(numbers, 3, sizeof *numbers, compare);
    if (rank == 0) {
        at("rank 0 only");
        MPI_Barrier(MPI_COMM_SELF);
    }
    fclose(places);
    fclose(depths);
    MPI_Finalize();
    return 0;
}
