/* Ends with an exit code of its own after MPI_Finalize. */
#include "conform.h"

int main(void)
{
    begin();
    DO(Barrier, 0, MPI_COMM_WORLD);
    end();
    return 6;
}
