/* The kernels of p3s machine measure: loops whose cost per operation tells a core and its memory.
 *
 *   kernels CORE MAX_BYTES
 *
 * CORE: number of the core to stay on, -1 for any. MAX_BYTES: largest working set. Answers
 * "ready PINNED" and then one line for each line of stdin:
 *
 *   NAME BYTES FOR_NS TOGETHER   ->   CPU_NS WALL_NS OPERATIONS LATE
 *
 * TOGETHER 0: runs until FOR_NS of thread CPU time have passed. 1: says "warm" and reads a line with
 * a time of CLOCK_MONOTONIC at which several processes begin; counts until FOR_NS of wall time have
 * passed and keeps its core busy for some time after that, so that none counts alone. LATE is 1
 * when the start was missed.
 * Every kernel computes something whose result is known; "wrong NAME" says that it did not come
 * out: then the loop was not what it should be, and no time of it means anything.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE 64           /* bytes between accesses that use one access per cache line */
#define STRIDE_LINES 17   /* stride of the strided kernel: 1088 bytes, no power of two */
#define TAIL 4            /* a loaded kernel runs 1/TAIL longer than it counts */

/* A value the compiler knows nothing about; also keeps a chain a chain. */
#define OPAQUE(x) __asm__ volatile("" : "+r"(x))

struct link {
    struct link *next;
    uint64_t ordinal; /* position in the cycle */
    char fill[LINE - sizeof(struct link *) - sizeof(uint64_t)];
};

static char *memory;
static size_t memory_bytes;

static int64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- core-bound kernels: each does `n` operations and returns whether the result is right ---- */

static int int_add(uint64_t n)
{
    uint64_t sum = 0, step = 3;
    OPAQUE(step);
    for (uint64_t i = 0; i < n; i += 8) {
        sum += step; OPAQUE(sum); sum += step; OPAQUE(sum);
        sum += step; OPAQUE(sum); sum += step; OPAQUE(sum);
        sum += step; OPAQUE(sum); sum += step; OPAQUE(sum);
        sum += step; OPAQUE(sum); sum += step; OPAQUE(sum);
    }
    return sum == 3 * n;
}

static int fp_add(uint64_t n)
{
    volatile double one = 1.0;
    double sum = 0.0, step = one;
    /* Without leave to reorder floating point, the compiler must add one after the other. */
    for (uint64_t i = 0; i < n; i += 8) {
        sum += step; sum += step; sum += step; sum += step;
        sum += step; sum += step; sum += step; sum += step;
    }
    return sum == (double)n;
}

typedef double pair __attribute__((vector_size(16))); /* as wide as every 64-bit machine has */

static int multiply_add(uint64_t n)
{
    volatile double half = 0.5, unit = 1.0;
    pair a = {half, half}, b = {unit, unit}, two = {unit + unit, unit + unit};
    /* Twelve chains that need nothing of each other; 2 * 0.5 + 1 stays 2. */
    pair x0 = two, x1 = two, x2 = two, x3 = two, x4 = two, x5 = two;
    pair x6 = two, x7 = two, x8 = two, x9 = two, xa = two, xb = two;
    for (uint64_t i = 0; i < n; i += 24) {
        x0 = x0 * a + b; x1 = x1 * a + b; x2 = x2 * a + b; x3 = x3 * a + b;
        x4 = x4 * a + b; x5 = x5 * a + b; x6 = x6 * a + b; x7 = x7 * a + b;
        x8 = x8 * a + b; x9 = x9 * a + b; xa = xa * a + b; xb = xb * a + b;
    }
    pair sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + xa + xb;
    return sum[0] + sum[1] == 48.0;
}

static int divide(uint64_t n)
{
    volatile double start = 3.0, top = 7.0;
    double x = start, y = top;
    for (uint64_t i = 0; i < n; i += 8) {
        x = y / x; x = y / x; x = y / x; x = y / x;
        x = y / x; x = y / x; x = y / x; x = y / x;
    }
    return x > 2.9999 && x < 3.0001;
}

/* A branch on each bit of a generator that does not repeat (xorshift, Marsaglia 2003). */
static int branch(uint64_t n)
{
    uint64_t state = 88172645463325252ull, ones = 0, zeros = 0;
    for (uint64_t i = 0; i < n; i += 64) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint64_t bits = state;
        for (int k = 0; k < 64; k++) {
            if (bits & 1) { ones++; OPAQUE(ones); }  /* OPAQUE: a jump, no conditional move */
            else { zeros++; OPAQUE(zeros); }
            bits >>= 1;
        }
    }
    return ones + zeros == n && ones > n / 3 && zeros > n / 3;
}

/* ---- memory kernels over the first `bytes` of the memory: `n` accesses in whole passes -------- */

static int read_stream(size_t bytes, uint64_t passes)
{
    const double *a = (const double *)memory;
    size_t n = bytes / sizeof(double);
    double total = 0.0;
    for (uint64_t p = 0; p < passes; p++) {
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
        for (size_t i = 0; i < n; i += 8) {
            s0 += a[i]; s1 += a[i + 1]; s2 += a[i + 2]; s3 += a[i + 3];
            s4 += a[i + 4]; s5 += a[i + 5]; s6 += a[i + 6]; s7 += a[i + 7];
        }
        total += (s0 + s1) + (s2 + s3) + ((s4 + s5) + (s6 + s7));
        __asm__ volatile("" ::: "memory"); /* the next pass reads again */
    }
    return total == (double)n * (double)passes;
}

static int triad(size_t bytes, uint64_t passes)
{
    size_t n = bytes / (3 * sizeof(double));
    double *a = (double *)memory, *b = a + n, *c = b + n;
    for (uint64_t p = 0; p < passes; p++) {
        volatile double factor = 1.0;
        double s = factor;
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + s * c[i];
        __asm__ volatile("" ::: "memory");
    }
    int right = a[0] == 2.0 && a[n / 2] == 2.0 && a[n - 1] == 2.0;
    for (size_t i = 0; i < n; i++) /* the others find ones */
        a[i] = 1.0;
    return right;
}

static int strided(size_t bytes, uint64_t passes)
{
    size_t lines = bytes / LINE;
    double total = 0.0;
    for (uint64_t p = 0; p < passes; p++) {
        double s = 0.0, t = 0.0;
        for (size_t first = 0; first < STRIDE_LINES; first++) {
            const char *at = memory + first * LINE, *end = memory + lines * LINE;
            for (; at + STRIDE_LINES * LINE < end; at += 2 * STRIDE_LINES * LINE) {
                s += *(const double *)at;
                t += *(const double *)(at + STRIDE_LINES * LINE);
            }
            if (at < end)
                s += *(const double *)at;
        }
        total += s + t;
        __asm__ volatile("" ::: "memory");
    }
    return total == (double)lines * (double)passes;
}

/* Independent reads at random places: what hides latency is how many a core has under way. */
static int gather(size_t bytes, uint64_t accesses)
{
    const double *a = (const double *)memory;
    uint64_t n = bytes / sizeof(double), key = 2463534242u;
    double s = 0.0, t = 0.0;
    for (uint64_t i = 0; i < accesses; i += 2) {
        key = key * 6364136223846793005ull + 1442695040888963407ull; /* Knuth's MMIX */
        s += a[((key >> 32) * n) >> 32];
        t += a[((key & 0xffffffffu) * n) >> 32];
    }
    return s + t == (double)accesses;
}

static struct link *place; /* of the chase, kept between calls */

static int chase(size_t bytes, uint64_t steps)
{
    size_t lines = bytes / LINE;
    uint64_t first = place->ordinal;
    struct link *at = place;
    for (uint64_t i = 0; i < steps; i += 8) {
        at = at->next; at = at->next; at = at->next; at = at->next;
        at = at->next; at = at->next; at = at->next; at = at->next;
    }
    OPAQUE(at);
    place = at;
    return at->ordinal == (first + steps) % lines;
}

/* Links all lines into one cycle in random order (Sattolo 1986). The order is found in numbers of
 * lines, which a cache holds where the lines themselves are far away. */
static int link_lines(size_t bytes)
{
    size_t lines = bytes / LINE;
    struct link *all = (struct link *)memory;
    uint32_t *next = malloc(lines * sizeof *next), at = 0;
    uint64_t state = 2463534242u;
    if (!next)
        return 0;
    for (size_t i = 0; i < lines; i++)
        next[i] = (uint32_t)i;
    for (size_t i = lines - 1; i > 0; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size_t j = (size_t)(((unsigned __int128)state * i) >> 64);
        uint32_t held = next[i];
        next[i] = next[j];
        next[j] = held;
    }
    for (size_t i = 0; i < lines; i++, at = next[at]) {
        all[at].next = &all[next[at]];
        all[at].ordinal = i;
    }
    free(next);
    place = all;
    return 1;
}

static void fill_ones(size_t bytes)
{
    double *a = (double *)memory;
    for (size_t i = 0; i < bytes / sizeof(double); i++)
        a[i] = 1.0;
}

/* ---- measuring ---------------------------------------------------------------------------- */

struct kernel {
    const char *name;
    int (*core)(uint64_t);           /* operations, in multiples of `grain` */
    int (*curve)(size_t, uint64_t);  /* passes, or accesses where by_step is set */
    int by_step;                     /* 1: over ones, 2: over links */
    uint64_t grain;
    size_t bytes_each;               /* of the working set, per operation of a pass */
};

static const struct kernel kernels[] = {
    {"int_add", int_add, NULL, 0, 4096, 0},
    {"fp_add", fp_add, NULL, 0, 4096, 0},
    {"multiply_add", multiply_add, NULL, 0, 24 * 256, 0},
    {"divide", divide, NULL, 0, 4096, 0},
    {"branch", branch, NULL, 0, 4096, 0},
    {"read", NULL, read_stream, 0, 1, sizeof(double)},
    {"triad", NULL, triad, 0, 1, 3 * sizeof(double)},
    {"strided", NULL, strided, 0, 1, LINE},
    {"gather", NULL, gather, 1, 1024, 0},
    {"chase", NULL, chase, 2, 1024, 0},
};

static int run(const struct kernel *k, size_t bytes, uint64_t amount)
{
    return k->core ? k->core(amount) : k->curve(bytes, amount);
}

static uint64_t operations(const struct kernel *k, size_t bytes, uint64_t amount)
{
    return k->core || k->by_step ? amount : amount * (bytes / k->bytes_each);
}

static void prepare(const struct kernel *k, size_t bytes)
{
    static int linked; /* the memory holds links, not ones */
    if (k->by_step == 2) {
        if (!link_lines(bytes)) {
            fputs("no memory for the order of the lines\n", stderr);
            exit(1);
        }
        linked = 1;
    } else if (k->curve && linked) {
        fill_ones(memory_bytes);
        linked = 0;
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int core = atoi(argv[1]), pinned = 0;
    if (core >= 0) {
        cpu_set_t *set = CPU_ALLOC(core + 1);
        size_t size = CPU_ALLOC_SIZE(core + 1);
        CPU_ZERO_S(size, set);
        CPU_SET_S(core, size, set);
        pinned = sched_setaffinity(0, size, set) == 0;
    }
    memory_bytes = strtoull(argv[2], NULL, 10);
    if (posix_memalign((void **)&memory, 4096, memory_bytes)) {
        puts("no memory");
        return 1;
    }
    fill_ones(memory_bytes);
    printf("ready %d\n", pinned);
    fflush(stdout);

    char line[256], name[64];
    unsigned long long bytes;
    long long for_ns, start_ns;
    int together;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%63s %llu %lld %d", name, &bytes, &for_ns, &together) != 4)
            return 2;
        const struct kernel *k = NULL;
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
            if (!strcmp(name, kernels[i].name))
                k = &kernels[i];
        if (!k || bytes > memory_bytes || (k->curve && bytes < 4096))
            return 2;
        prepare(k, bytes);

        /* Warms caches and clock, and finds how much is worth timing. */
        int right = 1;
        uint64_t amount = k->grain;
        for (;;) {
            int64_t begin = now(CLOCK_THREAD_CPUTIME_ID);
            right &= run(k, bytes, amount);
            int64_t took = now(CLOCK_THREAD_CPUTIME_ID) - begin;
            if (took >= for_ns / (together ? 16 : 4))
                break;
            amount *= 2;
        }
        int64_t late = 0;
        if (together) {
            puts("warm");
            fflush(stdout);
            if (!fgets(line, sizeof line, stdin) || sscanf(line, "%lld", &start_ns) != 1)
                return 2;
            late = now(CLOCK_MONOTONIC) > start_ns;
            while (now(CLOCK_MONOTONIC) < start_ns)
                ;
        }
        int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
        uint64_t done = 0;
        int64_t cpu_ns, wall_ns;
        do {
            right &= run(k, bytes, amount);
            done += amount;
            cpu_ns = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
            wall_ns = now(CLOCK_MONOTONIC) - wall;
        } while ((together ? wall_ns : cpu_ns) < for_ns);
        while (together && now(CLOCK_MONOTONIC) - wall < for_ns + for_ns / TAIL)
            right &= run(k, bytes, amount);
        if (right)
            printf("%lld %lld %llu %lld\n", (long long)cpu_ns, (long long)wall_ns,
                   (unsigned long long)operations(k, bytes, done), (long long)late);
        else
            printf("wrong %s\n", name);
        fflush(stdout);
    }
    return 0;
}
