/* How much a rank works between two MPI calls: wall time, CPU time of the thread, or executed
 * instructions; and hardware counters beside it. */
#include "p3s_inside.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#endif

int p3s_work_source = P3S_WORK_CPU;
int64_t p3s_clock_cost, p3s_wall_cost;
const volatile uint64_t *p3s_instructions;

static uint32_t counters;
static struct { uint32_t type; uint64_t config; } counter_event[P3S_MAX_COUNTERS];

/* ---- the clock of the work ----------------------------------------------------------------------- */

/* Ranks of this job on this node as their launcher tells them, 0 if it does not. */
static long ranks_here(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "PALS_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && atol(text) > 0)
            return atol(text);
    }
    /* "2(x3),1": tasks on each node; the largest will do. */
    const char *text = getenv("SLURM_STEP_TASKS_PER_NODE");
    long most = 0;
    while (text && *text) {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text)
            break;
        most = n > most ? n : most;
        text = strchr(end, ',');
        text = text ? text + 1 : NULL;
    }
    return most;
}

/* Threads that a rank may have at work at once: as OpenMP is told, if the program has it. */
static long threads_here(long cores)
{
    const char *text = getenv("OMP_NUM_THREADS");
    if (!dlsym(RTLD_DEFAULT, "omp_get_max_threads"))
        return 1;
    return text && atol(text) > 0 ? atol(text) : cores;
}

/* Does every thread of the job have a core of its own on this node? */
static bool alone(void)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN), ranks = ranks_here();
    long own = sched_getaffinity(0, sizeof set, &set) ? online : CPU_COUNT(&set);
    long threads = threads_here(own);
    return ranks > 0 && ranks * threads <= online && (threads == 1 || threads <= own);
}

/* The instruction counter of the emulator this process runs in: a file both have mapped. */
static bool map_instructions(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/insn-%ld", directory, (long)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const uint64_t *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return false;
    if (page[1] != 0x50335351454d5531u) {   /* "P3SQEMU1": the emulator is ready */
        munmap((void *)page, 4096);
        return false;
    }
    p3s_instructions = page;
    return true;
}

/* ---- counters ---------------------------------------------------------------------------------------- */

#ifdef __linux__
static const struct { const char *name; uint32_t type; uint64_t config; } known[] = {
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"llc-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"llc-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    {"dtlb-misses", PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_RESULT_MISS << 16},
    {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    {"cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
    {"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
};

static int open_counter(uint32_t type, uint64_t config, int leader, uint64_t format)
{
    struct perf_event_attr a;
    int fd = -1;
    /* The program's own instructions; but switches and migrations happen in the kernel. */
    for (int user = type != PERF_TYPE_SOFTWARE; fd < 0 && user < 2; user++) {
        memset(&a, 0, sizeof a);
        a.size = sizeof a;
        a.type = type;
        a.config = config;
        a.read_format = format;
        a.exclude_kernel = a.exclude_hv = user != 0;
        fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
    }
    return fd;
}

/* Read at every call: if the program closes it by mistake, its number should not soon be that of
 * something else, as low numbers are. */
#define HIGH_DESCRIPTOR 512

static int out_of_the_way(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* What a counter that shared its register with others would have counted alone. */
static uint64_t scaled(uint64_t value, uint64_t enabled, uint64_t running)
{
    return running && running < enabled ? (uint64_t)((long double)value * enabled / running) : value;
}
#define TIMES (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)

/* Instructions that this thread has executed outside of the kernel. */
int64_t p3s_perf_now(void)
{
    struct p3s_thread *t = &p3s_self;
    struct { uint64_t value, enabled, running; } now;
    if (!t->work_fd) {
        int fd = open_counter(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, -1, TIMES);
        t->work_fd = fd < 0 ? -1 : out_of_the_way(fd) + 1;
    }
    if (t->work_fd > 0 && read(t->work_fd - 1, &now, sizeof now) == (ssize_t)sizeof now) {
        int64_t found = (int64_t)scaled(now.value, now.enabled, now.running);
        t->work_read = found > t->work_read ? found : t->work_read;
    }
    return t->work_read;
}

/* Does perf_event count instructions? Some virtual machines have a counter of something else: a loop
 * of 2 instructions tells. The reads around it take less than a hundredth of it. */
static bool counts_instructions(void)
{
    int64_t turns = 500000, left = turns, before = p3s_perf_now();
    if (p3s_self.work_fd <= 0)
        return false;
#if defined __x86_64__
    __asm__ volatile("1: dec %0; jnz 1b" : "+r"(left) : : "cc");
#elif defined __aarch64__
    __asm__ volatile("1: subs %0, %0, #1; b.ne 1b" : "+r"(left) : : "cc");
#else
    turns = 0;                  /* not known: what it counts is not believed */
#endif
    int64_t more = p3s_perf_now() - before - 2 * turns;
    if (turns && more >= 0 && more < 2 * turns / 100)
        return true;
    close(p3s_self.work_fd - 1);
    p3s_self.work_fd = -1;
    return false;
}
#else
int64_t p3s_perf_now(void) { return 0; }
static bool counts_instructions(void) { return false; }
#endif

static const char *choose(const char *directory)
{
    const char *wish = getenv("P3S_WORK");
    bool instructions = wish && !strcmp(wish, "instructions");
    if (instructions && map_instructions(directory)) {
        p3s_work_source = P3S_WORK_INSTRUCTIONS;
        return "qemu-user plugin";
    }
    const char *perf = getenv("P3S_PERF");
    if (perf && *perf && threads_here(2) == 1 && counts_instructions()) {
        p3s_work_source = P3S_WORK_INSTRUCTIONS;
        return "perf_event, instructions:u";
    }
    bool wall = wish && !strcmp(wish, "wall");
    if (wall || (alone() && (!wish || !*wish || !strcmp(wish, "auto")))) {
        p3s_work_source = P3S_WORK_WALL;
        return "CLOCK_MONOTONIC";
    }
    p3s_work_source = P3S_WORK_CPU;
    return instructions ? "CLOCK_THREAD_CPUTIME_ID, no instruction counter was there"
                        : "CLOCK_THREAD_CPUTIME_ID";
}

static int64_t wall_now(void) { return p3s_clock_ns(CLOCK_MONOTONIC); }

static int64_t work_now(void) { return p3s_work_now(); }

/* What two reads of a clock, one right after the other, are apart. Between two events lies one such
 * read that is not the program's work. */
static int64_t read_cost(int64_t (*now)(void))
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 100; i++) {
        int64_t before = now();
        int64_t apart = now() - before;
        if (apart < least)
            least = apart;
    }
    return least;
}

/* ---- counters of a thread --------------------------------------------------------------------- */

/* The group of counters of this thread. */
void p3s_counters_open(struct p3s_thread *t)
{
    for (int i = 0; i < P3S_MAX_COUNTERS; i++)
        t->counter_fd[i] = -1;
#ifdef __linux__
    for (uint32_t i = 0; i < counters; i++) {
        t->counter_fd[i] = out_of_the_way(open_counter(
            counter_event[i].type, counter_event[i].config, i ? t->counter_fd[0] : -1,
            PERF_FORMAT_GROUP | TIMES));
        if (t->counter_fd[i] < 0)
            break;
    }
#endif
}

void p3s_counters_close(struct p3s_thread *t)
{
    if (t->work_fd > 0)
        close(t->work_fd - 1);
    t->work_fd = t->work_fd > 0 ? -1 : t->work_fd;     /* a read says what it said last */
    for (uint32_t i = 0; i < counters; i++)
        if (t->counter_fd[i] >= 0) {
            close(t->counter_fd[i]);
            t->counter_fd[i] = -1;
        }
}

void p3s_counters_read(struct p3s_thread *t, uint64_t *into)
{
    struct { uint64_t n, enabled, running, value[P3S_MAX_COUNTERS]; } group = {0};
    ssize_t got = t->counter_fd[0] >= 0 ? read(t->counter_fd[0], &group, sizeof group) : 0;
    for (uint32_t i = 0; i < counters; i++)
        into[i] = got > 0 && i < group.n ? scaled(group.value[i], group.enabled, group.running)
                                         : t->counter_at_return[i];
}

static void choose_counters(struct p3s_header *h)
{
    const char *wish = getenv("P3S_COUNTERS");
    char text[512], *rest = text, *name;
    bool asked = wish && *wish;
    if (!asked && p3s_work_source == P3S_WORK_INSTRUCTIONS && !p3s_instructions)
        wish = "task-clock,cycles,llc-misses";  /* beside the instructions, the time they take */
    else if (!asked)
        return;
    snprintf(text, sizeof text, "%s", wish);
#ifdef __linux__
    while ((name = strsep(&rest, ",")) && counters < P3S_MAX_COUNTERS) {
        uint32_t before = counters;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            int fd;
            if (strcmp(name, known[k].name) ||
                (fd = open_counter(known[k].type, known[k].config, -1, 0)) < 0)
                continue;       /* this machine does not have it */
            close(fd);
            counter_event[counters].type = known[k].type;
            counter_event[counters].config = known[k].config;
            snprintf(h->counter_names[counters++], sizeof *h->counter_names, "%s", name);
        }
        if (counters == before && h->rank == 0 && asked)
            fprintf(stderr, "p3s: warning: this machine has no counter %s\n", name);
    }
#endif
    h->counters = counters;
    p3s_counters = (int)counters;
}

int p3s_counters;

void p3s_clock_choose(const char *directory, struct p3s_header *h)
{
    snprintf(h->work_origin, sizeof h->work_origin, "%s", choose(directory));
    const char *wish = getenv("P3S_WORK");
    if (h->rank == 0 && wish && !strcmp(wish, "instructions") &&
        p3s_work_source != P3S_WORK_INSTRUCTIONS)
        fprintf(stderr, "p3s: warning: instructions are not counted: the program runs outside of"
                " qemu; name the program itself, not a script that starts it\n");
    p3s_clock_cost = read_cost(work_now);
    p3s_wall_cost = read_cost(wall_now);
    h->work_source = (uint32_t)p3s_work_source;
    h->clock_cost_ns = p3s_clock_cost;
    choose_counters(h);
}
