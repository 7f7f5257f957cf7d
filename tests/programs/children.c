/* Starts programs before and after MPI_Init, and says which libraries each of them has:
 * children OUT PROGRAM: PROGRAM is this one again, with one argument. */
#define _GNU_SOURCE
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *into;

static int tell(struct dl_phdr_info *info, size_t size, void *word)
{
    (void)size;
    (void)word;
    if (strstr(info->dlpi_name, "tracer-"))
        fprintf(into, " traced");
    if (strstr(info->dlpi_name, "other.so"))
        fprintf(into, " other");
    return 0;
}

static void start(const char *program, const char *out, const char *when)
{
    char line[4096];
    fflush(NULL);
    snprintf(line, sizeof line, "%s %s >> %s", program, when, out);
    if (system(line) != 0)
        abort();
}

int main(int argc, char **argv)
{
    into = stdout;
    if (argc == 2) {
        printf("%s:", argv[1]);
        dl_iterate_phdr(tell, NULL);
        printf(" preload=%s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "none");
        return 0;
    }
    int rank;
    const char *only = getenv("OMPI_COMM_WORLD_RANK");
    only = only ? only : getenv("PMI_RANK");
    if (only && atoi(only) == 0)
        start(argv[2], argv[1], "before");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        start(argv[2], argv[1], "after");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
