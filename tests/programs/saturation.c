/* Runs the tracer's phases without MPI: reads the calls and events of one rank, says which events
 * it would record and, at the end, prints the row of every phase.
 *
 *   saturation PLAN FILE < "CALLS EVENTS", keys of the calls, then "CALL ELAPSED WORK" per event */
#include "p3s_phase.c"

#include <stdio.h>
#include <stdlib.h>

const char *const p3s_op_names[] = {"MPI_X"};
struct p3s_header *p3s_header;
pthread_mutex_t p3s_lock;
int p3s_threaded;

void p3s_stop(const char *what, int error)
{
    (void)error;
    fprintf(stderr, "%s\n", what);
    exit(5);
}

int main(int argc, char **argv)
{
    static char name[2] = {'0', '1'};
    void *page;
    int calls, events, number;
    unsigned long long key;
    long long elapsed, work;
    if (argc != 3 || p3s_file_open(argv[2], 4096, &page) || scanf("%d %d", &calls, &events) != 2)
        return 1;
    p3s_header = page;
    p3s_phase_open(argv[1]);
    if (!p3s_phases)
        return 2;
    for (int i = 0; i < calls; i++) {
        if (scanf("%llx", &key) != 1)
            return 3;
        p3s_phase_site((uint32_t)i, key);
    }
    for (int i = 0; i < events; i++) {
        if (scanf("%d %lld %lld", &number, &elapsed, &work) != 3)
            return 4;
        struct p3s_call call = {.op = 0, .site = (uint32_t)number, .window = P3S_NONE};
        putchar(name[p3s_phase_wants((uint32_t)number, &call, elapsed, work)]);
    }
    putchar('\n');
    for (int i = 0; i < phase_count; i++)
        printf("%u %llu %llu %llu %llu %.17g %.17g %llu %llu %.17g\n", rows[i].state,
               (unsigned long long)rows[i].turns, (unsigned long long)rows[i].early,
               (unsigned long long)rows[i].measured, (unsigned long long)rows[i].batches,
               rows[i].mean, rows[i].variance, (unsigned long long)rows[i].left_out,
               (unsigned long long)rows[i].detailed, rows[i].detailed_mean);
    return 0;
}
