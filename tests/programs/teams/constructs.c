/* OpenMP constructs between MPI calls. Each is counted here where it stands, by the program itself; at
 * the end rank by rank a line per segment: the name of the segment, then what was counted. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGIONS, NESTED, DYNAMIC, STATIC, SECTIONS, BARRIERS, TASKS, SINGLES, CRITICALS, TEAM, KINDS };
static const char *const names[KINDS] = {"regions", "nested", "dynamic_loops", "static_loops",
                                         "sections", "barriers", "tasks", "singles", "criticals",
                                         "team"};
static long counted[KINDS];
static char said[32][400];
static int segments, me, wrong;

static void one(int what)
{
    #pragma omp atomic
    counted[what]++;
}

/* Of constructs that all threads of a team meet: once. */
static void once(int what)
{
    if (omp_get_thread_num() == 0)
        one(what);
}

static void part(void)
{
    #pragma omp atomic
    counted[TEAM]++;
}

static void end(const char *name, const char *unknown)
{
    int at = snprintf(said[segments], sizeof *said, "%d %s", me, name);
    for (int i = 0; i < KINDS; i++) {
        if (!unknown || !strstr(unknown, names[i]))
            at += snprintf(said[segments] + at, sizeof *said - (size_t)at, " %s=%ld", names[i],
                           counted[i]);
        counted[i] = 0;
    }
    segments++;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void regions(void)
{
    for (int i = 0; i < 3; i++) {
        one(REGIONS);
        counted[TEAM] = 0;
        #pragma omp parallel
        part();
    }
    end("regions", NULL);
    one(REGIONS);
    #pragma omp parallel num_threads(1)
    part();
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel if (me < 0)
    part();
    end("of-one", NULL);
}

static void loops(int n)
{
    one(REGIONS), one(DYNAMIC);
    #pragma omp parallel for schedule(dynamic, 3)
    for (int i = 0; i < n; i++)
        counted[TEAM] = omp_get_num_threads();
    one(REGIONS), one(DYNAMIC);
    #pragma omp parallel for schedule(guided)
    for (long i = 0; i < n; i++)
        counted[TEAM] = omp_get_num_threads();
    one(REGIONS), one(DYNAMIC);         /* OMP_SCHEDULE says dynamic */
    #pragma omp parallel for schedule(runtime)
    for (int i = 0; i < n; i++)
        counted[TEAM] = omp_get_num_threads();
    one(REGIONS), one(STATIC);
    #pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        counted[TEAM] = omp_get_num_threads();
    end("combined-loops", NULL);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        once(DYNAMIC), once(BARRIERS);
        #pragma omp for schedule(dynamic)
        for (int i = 0; i < n; i++)
            ;
        once(DYNAMIC);
        #pragma omp for schedule(nonmonotonic : dynamic, 2) nowait
        for (unsigned long long i = 0; i < (unsigned long long)n; i++)
            ;
        once(DYNAMIC), once(BARRIERS);
        #pragma omp for schedule(monotonic : guided)
        for (int i = 0; i < n; i++)
            ;
        once(STATIC), once(BARRIERS);
        #pragma omp for schedule(static, 2)
        for (int i = 0; i < n; i++)
            ;
        once(BARRIERS);
        #pragma omp barrier
        once(STATIC);
        #pragma omp for schedule(static) nowait
        for (int i = 0; i < n; i++)
            ;
    }
    end("loops", NULL);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        once(DYNAMIC), once(BARRIERS);
        #pragma omp for schedule(dynamic) ordered
        for (int i = 0; i < n; i++) {
            #pragma omp ordered
            wrong += i < 0;
        }
        part();                 /* else gcc leaves the barrier to the end of the region */
    }
    end("ordered", NULL);
}

static void shares(void)
{
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        for (int i = 0; i < 4; i++) {
            once(SINGLES), once(BARRIERS);
            #pragma omp single
            wrong += 0;
        }
        once(SINGLES);
        #pragma omp single nowait
        wrong += 0;
    }
    end("singles", NULL);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        for (int i = 0; i < 5; i++) {
            one(CRITICALS);
            #pragma omp critical
            wrong += 0;
            one(CRITICALS);
            #pragma omp critical(named)
            wrong += 0;
        }
    }
    end("criticals", NULL);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        once(SECTIONS), once(BARRIERS);
        #pragma omp sections
        {
            #pragma omp section
            wrong += 0;
            #pragma omp section
            wrong += 0;
            #pragma omp section
            wrong += 0;
        }
        part();                 /* else gcc leaves the barrier to the end of the region */
    }
    end("sections", NULL);
}

struct big { double value[40]; };

static void check(const struct big *b, int i)
{
    for (int k = 0; k < 40; k++)
        if (b->value[k] != i + k) {
            #pragma omp atomic
            wrong++;
        }
}

static struct big filled(int i)
{
    struct big b;
    for (int k = 0; k < 40; k++)
        b.value[k] = i + k;
    return b;
}

static long fib(int n)
{
    long a, b;
    if (n < 2)
        return n;
    one(TASKS);
    #pragma omp task shared(a)
    a = fib(n - 1);
    one(TASKS);
    #pragma omp task shared(b)
    b = fib(n - 2);
    #pragma omp taskwait
    return a + b;
}

static void tasks(void)
{
    int order = 0;
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        once(SINGLES), once(BARRIERS);
        #pragma omp single
        for (int i = 0; i < 50; i++) {
            struct big b = filled(i);
            one(TASKS);
            #pragma omp task firstprivate(b, i)
            check(&b, i);
            one(TASKS);
            #pragma omp task firstprivate(b, i) if (i % 2)
            check(&b, i);
        }
    }
    end("tasks", NULL);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        once(SINGLES), once(BARRIERS);
        #pragma omp single
        if (fib(10) != 55)
            wrong++;
    }
    end("recursive-tasks", NULL);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        once(SINGLES), once(BARRIERS);
        #pragma omp single
        {
            for (int i = 0; i < 10; i++) {
                one(TASKS);
                #pragma omp task depend(inout : order) firstprivate(i) shared(order)
                {
                    if (order != i)
                        wrong++;
                    order++;
                }
            }
            #pragma omp taskgroup
            for (int i = 0; i < 7; i++) {
                one(TASKS);
                #pragma omp task
                wrong += 0;
            }
        }
    }
    end("dependences", NULL);
    long sum = 0;
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        part();
        once(SINGLES), once(BARRIERS);
        #pragma omp single
        {
            struct big b = filled(3);
            #pragma omp taskloop num_tasks(8) firstprivate(b)
            for (int i = 0; i < 64; i++) {
                check(&b, 3);
                #pragma omp atomic
                sum += i;
            }
            #pragma omp taskloop num_tasks(4) reduction(+ : sum)
            for (unsigned long long i = 0; i < 8; i++)
                sum += (long)i;
        }
    }
    counted[TASKS] += 8 + 4;
    if (sum != 63 * 64 / 2 + 28)
        wrong++;
    end("taskloops", NULL);
}

static void reductions(void)
{
    long sum = 0;
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel reduction(task, + : sum)
    {
        part();
        for (int i = 0; i < 3; i++) {
            one(TASKS);
            #pragma omp task in_reduction(+ : sum)
            sum += 1;
        }
        sum += 100;
    }
    if (sum != 103 * counted[TEAM])
        wrong++;
    end("task-reductions", "barriers");
    int all = 0;
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel
    {
        int mine;
        part();
        once(SINGLES);
        #pragma omp single copyprivate(mine)
        mine = 17;
        #pragma omp atomic
        all += mine;
    }
    if (all != 17 * counted[TEAM])
        wrong++;
    end("copyprivate", "barriers");
}

static void nested(void)
{
    omp_set_max_active_levels(2);
    for (int i = 0; i < 3; i++) {
        one(REGIONS);
        counted[TEAM] = 0;
        #pragma omp parallel num_threads(2)
        {
            part();
            one(NESTED);
            #pragma omp parallel num_threads(2)
            {
                once(DYNAMIC), once(BARRIERS);
                #pragma omp for schedule(dynamic)
                for (int k = 0; k < 10; k++)
                    ;
                once(BARRIERS);
                #pragma omp barrier
            }
            once(BARRIERS);
            #pragma omp barrier
        }
    }
    end("nested", NULL);
    omp_set_max_active_levels(1);
    one(REGIONS);
    counted[TEAM] = 0;
    #pragma omp parallel num_threads(2)
    {
        part();
        one(NESTED);
        #pragma omp parallel num_threads(2)
        if (omp_get_num_threads() != 1)
            wrong++;
    }
    end("nested-serial", NULL);
}

int main(int argc, char **argv)
{
    int level, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int n = 40 + me;
    end("nothing", NULL);
    regions();
    loops(n);
    shares();
    tasks();
    reductions();
    nested();
    for (int r = 0; r < size; r++) {
        for (int i = 0; r == me && i < segments; i++)
            printf("%s\n", said[i]);
        if (r == me)
            printf("%d wrong=%d\n", me, wrong), fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
