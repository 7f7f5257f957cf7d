/* Counting in a distributed table: random access, then passes over the whole table.
 *
 * The table of ENTRIES counters is cut into one part per rank. In a turn of the first loop every
 * rank makes keys, all ranks exchange them (MPI_Alltoall), and each key is counted at PROBES
 * places of the own part. In a turn of the second loop the part is smoothed PASSES times and the
 * sums of all parts are added up from rank to rank (MPI_Exscan).
 */
#include <mpi.h>
#include <stdint.h>

#include "../../../examples/options.h"

static uint32_t mixed(uint32_t key)
{
    key ^= key >> 16;
    key *= 0x7feb352dU;
    key ^= key >> 15;
    key *= 0x846ca68bU;
    return key ^ (key >> 16);
}

static void make_keys(uint32_t *keys, long count, uint32_t seed)
{
    for (long i = 0; i < count; i++)
        keys[i] = mixed(seed + (uint32_t)i);
}

static void count_keys(uint32_t *table, uint32_t part, const uint32_t *keys, long count,
                       long probes)
{
    for (long i = 0; i < count; i++) {
        uint32_t key = keys[i];
        for (long p = 0; p < probes; p++) {
            key = key * 1664525U + 1013904223U;
            table[((uint64_t)key * part) >> 32]++;
        }
    }
}

static uint64_t smooth(uint32_t *table, uint32_t part, long passes)
{
    uint64_t sum = 0;
    for (long p = 0; p < passes; p++) {
        for (uint32_t i = 0; i + 1 < part; i++)
            table[i] = (table[i] + table[i + 1] + 1) / 2;
        sum += table[part / 2];
    }
    return sum;
}

static int run(int argc, char **argv, int rank, int size)
{
    long entries = 1 << 22, keys = 1 << 21, probes = 24, passes = 12, steps = 4, turns = 6;
    const struct option options[] = {
        {"entries", &entries, 1, "counters in the table"},
        {"keys", &keys, 1, "keys made per turn by all ranks"},
        {"probes", &probes, 1, "places each key is counted at"},
        {"passes", &passes, 1, "passes over the table in a turn"},
        {"steps", &steps, 1, "steps"},
        {"turns", &turns, 1, "turns of either loop per step"},
    };
    int code = parse_options(argc, argv, rank, "table", "Counters in a distributed table.",
                             options, 6);
    if (code != RUN)
        return code;
    long each = keys / size / size, own = each * size;
    if (each < 1 || entries / size < 2)
        return refuse(rank, "table", "%ld keys and %ld entries are too few for %d ranks", keys,
                      entries, size);
    uint32_t part = (uint32_t)block_size(entries, size, rank);
    uint32_t *table = calloc(part, sizeof *table);
    uint32_t *mine = malloc((size_t)own * sizeof *mine), *got = malloc((size_t)own * sizeof *got);
    if (!table || !mine || !got)
        return refuse(rank, "table", "out of memory");
    for (uint32_t i = 0; i < part; i++)
        table[i] = i % 5;

    uint64_t before = 0;
    for (long step = 0; step < steps; step++) {
        for (long turn = 0; turn < turns; turn++) {
            make_keys(mine, own, (uint32_t)((step * turns + turn) * size + rank) << 16);
            MPI_Alltoall(mine, (int)each, MPI_UINT32_T, got, (int)each, MPI_UINT32_T,
                         MPI_COMM_WORLD);
            count_keys(table, part, got, own, probes);
        }
        for (long turn = 0; turn < turns; turn++) {
            uint64_t sum = smooth(table, part, passes), sums = 0;
            MPI_Exscan(&sum, &sums, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
            before += sums;
        }
    }
    uint64_t all;
    MPI_Allreduce(&before, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("table: %llu\n", (unsigned long long)all);
    /* The memory goes back at exit: that is the kernel's time, not the program's. */
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
