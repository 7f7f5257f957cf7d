/* The command line of the example programs: "--name value" pairs and "--name" flags.
 *
 * Every rank parses the same arguments and comes to the same decision; only rank 0 speaks.
 * So a wrong argument ends the program cleanly, through MPI_Finalize, with exit code 2.
 */
#ifndef P3S_EXAMPLES_OPTIONS_H
#define P3S_EXAMPLES_OPTIONS_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option {
    const char *name;  /* without the leading "--" */
    long *value;       /* holds the default */
    long minimum;      /* smallest value allowed, or FLAG */
    const char *help;
};

enum { FLAG = -1 };
enum { RUN = -1, EXIT_HELP = 0, EXIT_USAGE = 2 };

/* Print one line on rank 0 and return the exit code of a wrong use. */
static inline int refuse(int rank, const char *program, const char *format, ...)
{
    if (rank == 0) {
        va_list arguments;
        va_start(arguments, format);
        fprintf(stderr, "%s: ", program);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
    return EXIT_USAGE;
}

static inline void print_help(const char *program, const char *summary,
                              const struct option *options, int count)
{
    printf("usage: mpiexec -n RANKS %s [options]\n%s\n\noptions:\n", program, summary);
    for (int i = 0; i < count; i++) {
        if (options[i].minimum == FLAG)
            printf("  --%-12s        %s\n", options[i].name, options[i].help);
        else
            printf("  --%-12s NUMBER %s (default %ld)\n", options[i].name, options[i].help,
                   *options[i].value);
    }
    printf("  --%-12s        show this text\n", "help");
}

/* Fill in the options; return RUN to go on, otherwise the program's exit code. */
static inline int parse_options(int argc, char **argv, int rank, const char *program,
                                const char *summary, const struct option *options, int count)
{
    for (int a = 1; a < argc; a++) {
        if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0) {
            if (rank == 0)
                print_help(program, summary, options, count);
            return EXIT_HELP;
        }
    }
    for (int a = 1; a < argc; a++) {
        const struct option *found = NULL;
        for (int i = 0; i < count; i++)
            if (strncmp(argv[a], "--", 2) == 0 && strcmp(argv[a] + 2, options[i].name) == 0)
                found = &options[i];
        if (!found)
            return refuse(rank, program, "unknown argument '%s'; see --help", argv[a]);
        if (found->minimum == FLAG) {
            *found->value = 1;
            continue;
        }
        if (a + 1 == argc)
            return refuse(rank, program, "%s needs a number", argv[a]);
        char *end;
        errno = 0;
        long number = strtol(argv[++a], &end, 10);
        if (end == argv[a] || *end != '\0' || errno != 0 || number > 1000000000L)
            return refuse(rank, program, "%s: '%s' is not a number up to 1000000000", argv[a - 1],
                          argv[a]);
        if (number < found->minimum)
            return refuse(rank, program, "%s: %ld is smaller than %ld", argv[a - 1], number,
                          found->minimum);
        *found->value = number;
    }
    return RUN;
}

/* Memory of count doubles, all zero. */
static inline double *zeros(size_t count)
{
    double *memory = calloc(count > 0 ? count : 1, sizeof *memory);
    if (!memory) {
        fprintf(stderr, "out of memory: %zu doubles\n", count);
        exit(1);
    }
    return memory;
}

/* Size and first index of part c when extent points are dealt to p parts, remainder first. */
static inline int block_size(long extent, int p, int c)
{
    return (int)(extent / p + (c < extent % p));
}

static inline long block_start(long extent, int p, int c)
{
    return extent / p * c + (c < extent % p ? c : extent % p);
}

#endif
