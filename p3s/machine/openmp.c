/* What teams of OpenMP threads cost, for p3s machine measure --openmp.
 *
 *   OMP_NUM_THREADS=T openmp
 *
 * Answers "ready TEAM RUNTIME" and then one line for each line of stdin:
 *
 *   overhead CONSTRUCT ITERATIONS FOR_NS -> NS REFERENCE_NS   of one construct with its bodies; of the bodies alone
 *   triad BYTES FOR_NS                   -> NS                of a pass over three arrays of BYTES each, the least
 *   chase KIND BYTES FOR_NS              -> NS                of a read where the last one says; KIND: line, page
 *   spin FOR_NS                          -> PER_SECOND        additions of a thread that wait for each other
 *
 * Overheads are those of the EPCC micro-benchmarks (Bull 1999; Bull, Reid, McDonnell 2012): time of a
 * construct whose threads each do a short body, less the time of the bodies on one thread. Loops have
 * ITERATIONS of them per thread. Bodies are counted; "wrong NAME" says that some were not done, "no
 * memory" that there is too little. All times are wall time.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 64
#define PAGE 4096
#define BODY 64      /* additions of a body, one clock cycle each */
#define MOST 4096    /* threads of a team */
#define OPAQUE(x) __asm__ volatile("" : "+r"(x))

static int team; /* threads of every parallel region */

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- overheads ------------------------------------------------------------------------------ */

static struct { uint64_t bodies; char fill[2 * LINE - sizeof(uint64_t)]; } done[MOST];

static inline void body(uint64_t *counted)
{
    uint64_t sum = 0;
    for (int i = 0; i < BODY; i++) {
        sum += 3;
        OPAQUE(sum);
    }
    (*counted)++;
}

static inline uint64_t *mine(void)
{
    return &done[omp_get_thread_num()].bodies;
}

static void reference(long reps, long iterations)
{
    for (long r = 0; r < reps; r++)
        for (long i = 0; i < iterations; i++)
            body(&done[0].bodies);
}

static void parallel(long reps, long iterations)
{
    for (long r = 0; r < reps; r++) {
#pragma omp parallel
        body(mine());
    }
}

static void reduction(long reps, long iterations)
{
    double sum = 0;
    for (long r = 0; r < reps; r++) {
#pragma omp parallel reduction(+ : sum)
        {
            body(mine());
            sum += 1;
        }
    }
    if (sum != (double)reps * team)
        done[0].bodies = 0;
}

#define LOOP(name, how)                                                       \
    static void name(long reps, long iterations)                              \
    {                                                                         \
        long all = iterations * team;                                         \
        _Pragma("omp parallel")                                               \
        {                                                                     \
            uint64_t *own = mine();                                           \
            for (long r = 0; r < reps; r++) {                                 \
                _Pragma(how)                                                  \
                for (long i = 0; i < all; i++)                                \
                    body(own);                                                \
            }                                                                 \
        }                                                                     \
    }

LOOP(static_loop, "omp for schedule(static)")
LOOP(dynamic_loop, "omp for schedule(dynamic, 1)")
LOOP(guided_loop, "omp for schedule(guided, 1)")

static void barrier(long reps, long iterations)
{
#pragma omp parallel
    {
        uint64_t *own = mine();
        for (long r = 0; r < reps; r++) {
            body(own);
#pragma omp barrier
        }
    }
}

static void single(long reps, long iterations)
{
#pragma omp parallel
    for (long r = 0; r < reps; r++) {
#pragma omp single
        body(mine());
    }
}

/* Each thread enters as often as all others; a rep is one entry. */
static void critical(long reps, long iterations)
{
#pragma omp parallel
    {
        uint64_t *own = mine();
#pragma omp for schedule(static)
        for (long r = 0; r < reps; r++) {
#pragma omp critical
            body(own);
        }
    }
}

static void task(long reps, long iterations)
{
#pragma omp parallel
    {
        for (long r = 0; r < reps; r++) {
#pragma omp task
            body(mine());
        }
#pragma omp taskwait
    }
}

struct construct {
    const char *name;
    void (*run)(long reps, long iterations);
    int loop;  /* ITERATIONS count */
    int every; /* each thread does a body in each rep */
};

static const struct construct constructs[] = {
    {"parallel", parallel, 0, 1},       {"reduction", reduction, 0, 1},
    {"static", static_loop, 1, 1},      {"dynamic", dynamic_loop, 1, 1},
    {"guided", guided_loop, 1, 1},      {"barrier", barrier, 0, 1},
    {"single", single, 0, 0},           {"critical", critical, 0, 0},
    {"task", task, 0, 1},
};

static uint64_t bodies(void)
{
    uint64_t sum = 0;
    for (int t = 0; t < MOST; t++) {
        sum += done[t].bodies;
        done[t].bodies = 0;
    }
    return sum;
}

static int64_t timed(void (*run)(long, long), long reps, long iterations)
{
    int64_t begin = now();
    run(reps, iterations);
    return now() - begin;
}

static void overhead(const char *name, long iterations, int64_t for_ns)
{
    const struct construct *c = NULL;
    for (size_t i = 0; i < sizeof constructs / sizeof *constructs; i++)
        if (!strcmp(name, constructs[i].name))
            c = &constructs[i];
    if (!c || iterations < 1)
        exit(2);
    if (!c->loop)
        iterations = 1;
    long reps = 1;
    while (timed(c->run, reps, iterations) < for_ns / 4)
        reps *= 2;
    reps *= 2;
    bodies();
    int64_t took = timed(c->run, reps, iterations);
    uint64_t wanted = (uint64_t)(reps * iterations * (c->every ? team : 1));
    if (bodies() != wanted) {
        printf("wrong %s\n", name);
        return;
    }
    int64_t alone = timed(reference, reps, iterations);
    bodies();
    printf("%.3f %.3f\n", (double)took / (double)reps, (double)alone / (double)reps);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *mapped(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* STREAM's triad (McCalpin 1995): each thread fills its part of the arrays first. */
static void triad(size_t bytes, int64_t for_ns)
{
    long n = (long)(bytes / sizeof(double));
    double *a = mapped(bytes), *b = mapped(bytes), *c = mapped(bytes), scale = 3.0;
    if (!a || !b || !c) {
        puts("no memory");
        return;
    }
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) {
        a[i] = 0.0;
        b[i] = 2.0;
        c[i] = 1.0;
    }
    int64_t least = INT64_MAX, begin = now();
    do {
        int64_t start = now();
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            a[i] = b[i] + scale * c[i];
        int64_t took = now() - start;
        if (took < least)
            least = took;
    } while (now() - begin < for_ns);
    int right = a[0] == 5.0 && a[n / 2] == 5.0 && a[n - 1] == 5.0;
    munmap(a, bytes);
    munmap(b, bytes);
    munmap(c, bytes);
    if (right)
        printf("%lld\n", (long long)least);
    else
        puts("wrong triad");
}

static uint64_t state = 2463534242u;

/* A number below `limit` (xorshift, Marsaglia 2003). */
static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(((unsigned __int128)state * limit) >> 64);
}

static void shuffled(uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        size_t j = below(i);
        uint32_t held = order[i - 1];
        order[i - 1] = order[j];
        order[j] = held;
    }
}

/* Links lines into one cycle through pages in random order. line: all lines of a page, in random
 * order, before the next page, so that few reads need another page; page: one line of each, at
 * random places, so that each read does. Returns the first line and how many there are. */
static void **linked(char *memory, size_t bytes, int by_page, size_t *count)
{
    size_t pages = bytes / PAGE, of_page = by_page ? 1 : PAGE / LINE;
    uint32_t *order = malloc(pages * sizeof *order), lines[PAGE / LINE];
    if (!order)
        return NULL;
    void **first = NULL, **last = NULL;
    shuffled(order, pages);
    for (size_t p = 0; p < pages; p++) {
        shuffled(lines, PAGE / LINE);
        for (size_t l = 0; l < of_page; l++) {
            void **here = (void **)(memory + (size_t)order[p] * PAGE + lines[l] * LINE);
            if (last)
                *last = here;
            else
                first = here;
            last = here;
        }
    }
    *last = first;
    free(order);
    *count = pages * of_page;
    return first;
}

static void chase(const char *kind, size_t bytes, int64_t for_ns)
{
    bytes = bytes / PAGE * PAGE;
    char *memory = bytes ? mapped(bytes) : NULL;
    size_t count = 0;
    if (!memory) {
        puts("no memory");
        return;
    }
    madvise(memory, bytes, MADV_NOHUGEPAGE); /* huge pages would hide what a missing page costs */
    void **first = linked(memory, bytes, !strcmp(kind, "page"), &count), **at = first;
    if (!first) {
        puts("no memory");
        return;
    }
    size_t rounds = 1;
    int64_t took = 0;
    for (int warm = 1;; warm = 0) {
        int64_t begin = now();
        for (size_t r = 0; r < rounds; r++)
            for (size_t i = 0; i < count; i++)
                at = *at;
        OPAQUE(at);
        took = now() - begin;
        if (!warm && took >= for_ns / 2)
            break;
        if (took < for_ns / 2)
            rounds *= 2;
    }
    if (at == first)
        printf("%.4f\n", (double)took / (double)(rounds * count));
    else
        puts("wrong chase");
    munmap(memory, bytes);
}

/* ---- clock ----------------------------------------------------------------------------------- */

static void spin(int64_t for_ns)
{
    double rate = 0;
#pragma omp parallel reduction(+ : rate)
    {
        uint64_t sum = 0, added = 0;
        int64_t begin = now(), took;
        do {
            for (int i = 0; i < 1 << 16; i++) {
                sum += 3;
                OPAQUE(sum);
            }
            added += 1 << 16;
            took = now() - begin;
        } while (took < for_ns);
        rate += 1e9 * (double)added / (double)took;
    }
    printf("%.0f\n", rate / team);
}

int main(void)
{
#pragma omp parallel
#pragma omp single
    team = omp_get_num_threads();
    if (team > MOST)
        return 2;
#ifdef __clang__
    printf("ready %d libomp\n", team);
#else
    printf("ready %d libgomp\n", team);
#endif
    fflush(stdout);
    char line[256], name[64];
    unsigned long long bytes;
    long long for_ns, iterations;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "overhead %63s %lld %lld", name, &iterations, &for_ns) == 3)
            overhead(name, (long)iterations, for_ns);
        else if (sscanf(line, "triad %llu %lld", &bytes, &for_ns) == 2)
            triad(bytes, for_ns);
        else if (sscanf(line, "chase %63s %llu %lld", name, &bytes, &for_ns) == 3)
            chase(name, bytes, for_ns);
        else if (sscanf(line, "spin %lld", &for_ns) == 1)
            spin(for_ns);
        else
            return 2;
        fflush(stdout);
    }
    return 0;
}
