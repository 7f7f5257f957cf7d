/* Gravitational N-body problem as a ring pipeline.
 *
 * Every rank owns a block of the bodies. A copy of each block travels once around the ring in
 * p - 1 shifts per time step, and every rank adds the forces of the block that is visiting.
 * Blocks have unequal size when p does not divide the number of bodies: they travel padded to
 * ceil(n / p) bodies with mass 0, or (--packed) with the bodies that their owner really has.
 */
#include <math.h>
#include <mpi.h>

#include "options.h"

enum { FIELDS = 4 }; /* x, y, z, mass of a travelling body */

struct ring {
    int rank, size, left, right;
    long bodies;
    int packed, overlap;
};

/* A number in [0, 1) that depends on the body and the field only, not on the rank. */
static double scatter(long body, int field)
{
    unsigned long long h = (unsigned long long)body * 4 + (unsigned long long)field + 1;
    h *= 0x9E3779B97F4A7C15ULL;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ULL;
    h ^= h >> 32;
    return (double)(h >> 11) / 9007199254740992.0;
}

static void add_forces(const double *own, int n_own, const double *visitors, int n_visitors,
                       double *force)
{
    const double softening = 1e-3;
    for (int i = 0; i < n_own; i++) {
        double fx = 0.0, fy = 0.0, fz = 0.0;
        for (int j = 0; j < n_visitors; j++) {
            double dx = visitors[FIELDS * j] - own[FIELDS * i];
            double dy = visitors[FIELDS * j + 1] - own[FIELDS * i + 1];
            double dz = visitors[FIELDS * j + 2] - own[FIELDS * i + 2];
            double r2 = dx * dx + dy * dy + dz * dz + softening;
            double pull = visitors[FIELDS * j + 3] / (r2 * sqrt(r2));
            fx += pull * dx;
            fy += pull * dy;
            fz += pull * dz;
        }
        force[3 * i] += fx;
        force[3 * i + 1] += fy;
        force[3 * i + 2] += fz;
    }
}

/* Bodies in the message that holds the block of this owner. */
static int travelling(const struct ring *ring, int owner)
{
    int ceiling = (int)((ring->bodies + ring->size - 1) / ring->size);
    return ring->packed ? block_size(ring->bodies, ring->size, owner) : ceiling;
}

/* All forces on the own bodies; visitor and spare are buffers of ceil(n / p) bodies. */
static void all_forces(const struct ring *ring, const double *own, int n_own, double *visitor,
                       double *spare, double *force)
{
    int p = ring->size;
    memset(force, 0, sizeof *force * 3 * (size_t)n_own);
    memcpy(visitor, own, sizeof *own * FIELDS * (size_t)travelling(ring, ring->rank));
    for (int step = 1; step < p; step++) {
        int leaving = travelling(ring, (ring->rank - step + 1 + p) % p);
        int coming = travelling(ring, (ring->rank - step + p) % p);
        if (ring->overlap) {
            MPI_Request requests[2];
            MPI_Irecv(spare, FIELDS * coming, MPI_DOUBLE, ring->left, 0, MPI_COMM_WORLD,
                      &requests[0]);
            MPI_Isend(visitor, FIELDS * leaving, MPI_DOUBLE, ring->right, 0, MPI_COMM_WORLD,
                      &requests[1]);
            add_forces(own, n_own, visitor, leaving, force);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else {
            add_forces(own, n_own, visitor, leaving, force);
            MPI_Sendrecv(visitor, FIELDS * leaving, MPI_DOUBLE, ring->right, 0, spare,
                         FIELDS * coming, MPI_DOUBLE, ring->left, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        }
        double *other = visitor;
        visitor = spare;
        spare = other;
    }
    add_forces(own, n_own, visitor, travelling(ring, (ring->rank + 1) % p), force);
}

static void simulate(const struct ring *ring, long steps)
{
    const double dt = 1e-4;
    int n_own = block_size(ring->bodies, ring->size, ring->rank);
    long first = block_start(ring->bodies, ring->size, ring->rank);
    size_t ceiling = (size_t)((ring->bodies + ring->size - 1) / ring->size);
    double *own = zeros(FIELDS * ceiling), *visitor = zeros(FIELDS * ceiling);
    double *spare = zeros(FIELDS * ceiling);
    double *velocity = zeros(3 * (size_t)n_own), *force = zeros(3 * (size_t)n_own);

    for (int i = 0; i < n_own; i++) {
        for (int d = 0; d < 3; d++)
            own[FIELDS * i + d] = scatter(first + i, d);
        own[FIELDS * i + 3] = (0.5 + scatter(first + i, 3)) / (double)ring->bodies;
    }
    for (long step = 0; step < steps; step++) {
        all_forces(ring, own, n_own, visitor, spare, force);
        for (int i = 0; i < n_own; i++)
            for (int d = 0; d < 3; d++) {
                velocity[3 * i + d] += dt * force[3 * i + d];
                own[FIELDS * i + d] += dt * velocity[3 * i + d];
            }
    }

    double local[2] = {0.0, 0.0}, total[2]; /* kinetic energy, sum of squared positions */
    for (int i = 0; i < n_own; i++)
        for (int d = 0; d < 3; d++) {
            local[0] += 0.5 * own[FIELDS * i + 3] * velocity[3 * i + d] * velocity[3 * i + d];
            local[1] += own[FIELDS * i + d] * own[FIELDS * i + d];
        }
    MPI_Allreduce(local, total, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (ring->rank == 0)
        printf("ring %ld bodies, %ld steps: kinetic energy %.9e norm %.9e\n", ring->bodies, steps,
               total[0], sqrt(total[1]));
    free(own);
    free(visitor);
    free(spare);
    free(velocity);
    free(force);
}

static int run(int argc, char **argv, int rank, int size)
{
    long bodies = 1000, steps = 10, packed = 0, overlap = 0;
    const struct option options[] = {
        {"bodies", &bodies, 1, "number of bodies"},
        {"steps", &steps, 1, "time steps"},
        {"packed", &packed, FLAG, "send the bodies that a block has, not ceil(bodies / ranks)"},
        {"overlap", &overlap, FLAG, "compute between MPI_Isend/Irecv and Waitall, not Sendrecv"},
    };
    int code = parse_options(argc, argv, rank, "ring",
                             "N-body problem: blocks of bodies travel around a ring.", options, 4);
    if (code != RUN)
        return code;
    if (bodies < size)
        return refuse(rank, "ring", "%ld bodies are fewer than %d ranks; use fewer ranks or more "
                      "bodies", bodies, size);
    struct ring ring = {rank, size, (rank - 1 + size) % size, (rank + 1) % size,
                        bodies, (int)packed, (int)overlap};
    simulate(&ring, steps);
    return 0;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int code = run(argc, argv, rank, size);
    MPI_Finalize();
    return code;
}
