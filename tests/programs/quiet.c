/* No MPI at all. */
#include <stdio.h>

int main(void)
{
    puts("nothing to see");
    return 0;
}
