/* Times MPI calls that do next to nothing: sends to MPI_PROC_NULL, and 8 bytes from this rank to
 * itself. Prints one line of names and values: nanoseconds per call of each kind, then the memory
 * of this process in KiB (all of it at its peak, and the part that is not backed by files). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* CPU time, the kernel's for this process included: no call here waits, and what else runs on the
 * machine must not count. */
static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static long status_kib(const char *key)
{
    char line[256];
    long value = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            value = atol(line + strlen(key));
    if (file)
        fclose(file);
    return value;
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 1000000;
    double in = 0, out = 1;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    for (int warm = 0; warm < 1000; warm++)
        MPI_Send(&out, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    double start = now_ns();
    for (long i = 0; i < calls; i++)
        MPI_Send(&out, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    double null_ns = (now_ns() - start) / (double)calls;
    long turns = calls / 30;
    start = now_ns();
    for (long i = 0; i < turns; i++) {
        MPI_Irecv(&in, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
        MPI_Send(&out, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    double self_ns = (now_ns() - start) / (double)(3 * turns);
    printf("null %.1f self %.1f peak %ld own %ld\n", null_ns, self_ns, status_kib("VmHWM:"),
           status_kib("RssAnon:"));
    MPI_Finalize();
    return 0;
}
