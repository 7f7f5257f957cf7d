/* Gives Fortran's run-time library the program's arguments: linked into the program.
 *
 * They come with main, which a Fortran program of the simulator has not. ACCURACY_ARGUMENTS has
 * them, one a line; they are the same for all ranks.
 */
#include <stdlib.h>
#include <string.h>

void _gfortran_set_args(int argc, char **argv) __attribute__((weak));

__attribute__((constructor)) static void arguments(void)
{
    const char *lines = getenv("ACCURACY_ARGUMENTS");
    if (!_gfortran_set_args || !lines)
        return;
    int argc = 1;
    for (const char *c = lines; *c; c++)
        argc += *c == '\n';
    char **argv = malloc((size_t)(argc + 1) * sizeof *argv);
    char *rest = strdup(lines);
    for (int i = 0; i < argc; i++)
        argv[i] = strsep(&rest, "\n");
    argv[argc] = NULL;
    _gfortran_set_args(argc, argv);
}
