/* Steps in time up to an end that rounding may reach early or late; the step follows n. */
#include "phases/phases.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    float end = 1.0f, step = 1.0f / (5 * size), word = 0.0f, other;
    for (float t = 0.0f; t < end; t += step)
        MPI_Sendrecv(&word, 1, MPI_FLOAT, (rank + 1) % size, 0, &other, 1, MPI_FLOAT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
