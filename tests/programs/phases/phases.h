/* What the programs of the phase corpus share. Each takes numbers in a fixed order. */
#ifndef PHASES_H
#define PHASES_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* Argument number i, or the default. */
static inline int argument(int argc, char **argv, int i, int value)
{
    return i < argc ? atoi(argv[i]) : value;
}

/* A balanced bordered grid of two dimensions, rows first: own place and extents. */
struct grid {
    int extent[2], at[2];
};

static inline struct grid make_grid(void)
{
    struct grid g = {{0, 0}, {0, 0}};
    MPI_Dims_create(size, 2, g.extent);
    g.at[0] = rank / g.extent[1];
    g.at[1] = rank % g.extent[1];
    return g;
}

/* The neighbour `step` places along a dimension, MPI_PROC_NULL beyond the border. */
static inline int neighbour(const struct grid *g, int dimension, int step)
{
    int there = g->at[dimension] + step;
    if (there < 0 || there >= g->extent[dimension])
        return MPI_PROC_NULL;
    return dimension == 0 ? there * g->extent[1] + g->at[1] : g->at[0] * g->extent[1] + there;
}

#endif
