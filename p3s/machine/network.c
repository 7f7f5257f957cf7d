/* What messages between two ranks cost, for p3s machine measure.
 *
 *   network BUDGET_NS
 *
 * Rank 0 prints, all times in nanoseconds of wall time (somebody waits, so CPU time says nothing):
 *
 *   rank R HOST CORE     (the host of rank 0 for both where they run on one kernel)
 *   eager BYTES        largest message whose MPI_Send ends before its receive is posted (-1: none)
 *   unattended BYTES   the same while the receiver makes no MPI call at all
 *   post LEAST MEDIAN  duration of MPI_Irecv before its message is sent
 *   size S N ONE_WAY MEDIAN SEND SEND_MEDIAN RECEIVE RECEIVE_MEDIAN GAP
 *
 * ONE_WAY: half of a round trip. SEND: duration of MPI_Isend while its receive is posted. RECEIVE:
 * duration of MPI_Recv of a message that has arrived (-1 where none can have). GAP: time that one
 * more message of a stream costs. First the least, then the median; N round trips were timed.
 *
 *   create WHAT LEAST MEDIAN  making and freeing a communicator of one rank
 *   pack WHERE BLOCK PACK PACK_MEDIAN UNPACK UNPACK_MEDIAN
 *
 * the last in ns per byte of a message of pieces of BLOCK bytes, near (a block apart), far (each on
 * a page of its own) or whole (one piece).
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PING, STREAM, OVERHEAD, LATE, BUSY, END }; /* what rank 1 is asked to do */
enum { MOST = 4 << 20, SIZES = 56, KEEP = 4096, WINDOW = 8 << 20, FEW = 2, MANY = 48, LEAST = 6 };

/* What is taken for a line: this share off, in the middle between sizes that are further apart; what
 * two sizes next to each other differ by where there is no step between them. */
#define STRAIGHT 0.08
/* Communicators that are made and freed to time that. */
#define CREATIONS 500
enum { NEAR = 64 };
/* A message whose packing is timed, how often, and what lies between pieces that are far apart:
 * more than a page, and no multiple of one, so that they do not share a set of a cache. */
enum { PACKED = 16 << 10, PACKINGS = 200, APART = 4096 + 64 };

struct samples { int n, seen; double value[KEEP]; };
struct order { int what, bytes, count; };

static char *buffer;
static int rank;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Waits; with `calls`, inside of MPI calls that let messages come in but match none. */
static void spin(double ns, int calls)
{
    int found;
    for (double end = now() + ns; now() < end;)
        if (calls)
            MPI_Iprobe(1 - rank, 3, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

static void keep(struct samples *s, double value)
{
    /* When it is full, later samples take the places of earlier ones in turn. */
    s->value[s->seen++ % KEEP] = value;
    s->n = s->seen < KEEP ? s->seen : KEEP;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts; returns the sample at a share of them, -1 without samples. */
static double at(struct samples *s, double share)
{
    if (!s->n)
        return -1;
    qsort(s->value, (size_t)s->n, sizeof *s->value, ascending);
    return s->value[(int)(share * (s->n - 1))];
}

static struct order ask(int what, int bytes, int count)
{
    struct order order = {what, bytes, count};
    MPI_Bcast(&order, 3, MPI_INT, 0, MPI_COMM_WORLD);
    return order;
}

static void send(int bytes) { MPI_Send(buffer, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD); }

static void receive(int bytes)
{
    MPI_Recv(buffer, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void ping(int bytes, int count, struct samples *out)
{
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            double begin = now();
            send(bytes);
            receive(bytes);
            double took = (now() - begin) / 2;
            if (i) /* the first finds rank 1 in another state */
                keep(out, took);
        } else {
            receive(bytes);
            send(bytes);
        }
    }
}

/* `count` messages in a row into posted receives, then an answer; returns the time of all. */
static double stream(int bytes, int count)
{
    MPI_Request requests[MANY];
    double took = 0;
    if (rank == 0) {
        receive(0);
        double begin = now();
        for (int i = 0; i < count; i++)
            MPI_Isend(buffer + (size_t)i * bytes, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD,
                      &requests[i]);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        receive(0);
        took = now() - begin;
    } else {
        for (int i = 0; i < count; i++)
            MPI_Irecv(buffer + (size_t)i * bytes, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD,
                      &requests[i]);
        send(0);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        send(0);
    }
    return took;
}

/* One MPI_Isend into a posted receive, timed by rank 0; returns how long rank 1 took to post it. */
static double overhead(int bytes, struct samples *out)
{
    MPI_Request request;
    double took = 0;
    if (rank == 0) {
        receive(0);
        double begin = now();
        MPI_Isend(buffer, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
        keep(out, now() - begin);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        double begin = now();
        MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &request);
        took = now() - begin;
        send(0);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return took;
}

/* A message that waits for its receiver: returns how long MPI_Send took (rank 0) or MPI_Recv. */
static double late(int bytes, double wait_ns, int calls)
{
    double took;
    if (rank == 0) {
        receive(0);
        double begin = now();
        MPI_Send(buffer, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        took = now() - begin;
    } else {
        send(0);
        spin(wait_ns, calls);
        double begin = now();
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        took = now() - begin;
    }
    return took;
}

/* Rank 0 gets what rank 1 has measured; both call it. */
static double of_other(double value)
{
    MPI_Bcast(&value, 1, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    return value;
}

/* Whether MPI_Send ends long before its receive is posted, in most of three attempts. */
static int is_eager(int what, int bytes, double wait_ns)
{
    int eager = 0;
    for (int i = 0; i < 3; i++) {
        ask(what, bytes, (int)wait_ns);
        eager += late(bytes, wait_ns, what == BUSY) < wait_ns / 2;
        of_other(0);
    }
    return eager > 1;
}

static int eager_limit(int what, double wait_ns)
{
    int low = 0, high = MOST;
    if (!is_eager(what, 0, wait_ns))
        return -1;
    if (is_eager(what, MOST, wait_ns))
        return MOST;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (is_eager(what, middle, wait_ns))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Half of a round trip, the least of some. */
static double probe(int bytes)
{
    static struct samples some;
    some.n = some.seen = 0;
    for (int round = 0; round < 2; round++) {
        ask(PING, bytes, 6);
        ping(bytes, 6, &some);
    }
    return at(&some, 0);
}

static int many_of(int bytes)
{
    int fit = WINDOW / (bytes ? bytes : 1);
    return fit > MANY ? MANY : fit < LEAST ? LEAST : fit;
}

static void serve(void)
{
    for (;;) {
        struct order order = ask(0, 0, 0);
        if (order.what == PING)
            ping(order.bytes, order.count, NULL);
        else if (order.what == STREAM)
            stream(order.bytes, order.count);
        else if (order.what == OVERHEAD)
            of_other(overhead(order.bytes, NULL));
        else if (order.what == LATE || order.what == BUSY)
            of_other(late(order.bytes, order.count, order.what == BUSY));
        else
            return;
    }
}

/* Sizes: 0, powers of two, both sides of the eager limit, and more of them where the time of a
 * message does not lie near the line between its neighbours: where a library or network changes
 * how it sends. Returns how many. */
static int choose(int *sizes, int eager)
{
    double took[SIZES];
    int n = 0, i = 0;

    sizes[n++] = 0;
    for (int bytes = 1; bytes <= MOST; bytes *= 2) {
        sizes[n++] = bytes;
        for (int more = eager; more <= eager + 1; more++)
            if (more > bytes && more < 2 * bytes && more < MOST)
                sizes[n++] = more;
    }
    for (int k = 0; k < n; k++)
        took[k] = probe(sizes[k]);
    while (i + 1 < n && n < SIZES) {
        int low = sizes[i], high = sizes[i + 1], middle = low + (high - low) / 2;
        int step = took[i + 1] > took[i] * (1 + STRAIGHT) || took[i + 1] < took[i] * (1 - STRAIGHT);
        int far = high - low > NEAR + high / 16 || (high - low > NEAR && step);
        double found = far ? probe(middle) : -1;
        double line = (took[i] + took[i + 1]) / 2;
        if (found < 0 || (found > line * (1 - STRAIGHT) && found < line * (1 + STRAIGHT))) {
            i++;
            continue;
        }
        memmove(sizes + i + 2, sizes + i + 1, (size_t)(n - i - 1) * sizeof *sizes);
        memmove(took + i + 2, took + i + 1, (size_t)(n - i - 1) * sizeof *took);
        sizes[i + 1] = middle;
        took[i + 1] = found;
        n++;
    }
    return n;
}

static void measure(double budget_ns)
{
    static int sizes[SIZES];
    static struct samples one_way[SIZES], sending[SIZES], receiving[SIZES], few[SIZES], many[SIZES],
        posting;
    double wait_ns = 1e6, begin = now();

    int eager = eager_limit(BUSY, wait_ns);
    printf("eager %d\nunattended %d\n", eager, eager_limit(LATE, wait_ns));

    int number = choose(sizes, eager);
    /* Rounds over all sizes, so that a disturbance does not meet one size alone. */
    for (int round = 0; round < 2 || now() - begin < budget_ns; round++) {
        for (int i = 0; i < number; i++) {
            int bytes = sizes[i], count = bytes > (64 << 10) ? 8 : 32;
            ask(PING, bytes, count);
            ping(bytes, count, &one_way[i]);
            ask(STREAM, bytes, FEW);
            keep(&few[i], stream(bytes, FEW));
            ask(STREAM, bytes, many_of(bytes));
            keep(&many[i], stream(bytes, many_of(bytes)));
            for (int k = 0; k < 4; k++) {
                ask(OVERHEAD, bytes, 0);
                overhead(bytes, &sending[i]);
                keep(&posting, of_other(0));
                if (bytes > eager)
                    continue;
                double wait = 4 * one_way[i].value[0] + 20e3;
                wait = wait < wait_ns ? wait : wait_ns;
                ask(LATE, bytes, (int)wait);
                late(bytes, wait, 0);
                keep(&receiving[i], of_other(0));
            }
        }
    }
    ask(END, 0, 0);
    printf("post %.1f %.1f\n", at(&posting, 0), at(&posting, 0.5));
    for (int i = 0; i < number; i++) {
        double gap = (at(&many[i], 0) - at(&few[i], 0)) / (many_of(sizes[i]) - FEW);
        printf("size %d %d %.1f %.1f %.1f %.1f %.1f %.1f %.1f\n", sizes[i], one_way[i].seen,
               at(&one_way[i], 0), at(&one_way[i], 0.5), at(&sending[i], 0), at(&sending[i], 0.5),
               at(&receiving[i], 0), at(&receiving[i], 0.5), gap > 0 ? gap : 0);
    }
}

/* What a rank does by itself to make and to free a communicator, in ns: least, median. */
static void creating(void)
{
    static struct samples dup, split, release;
    MPI_Comm made;
    for (int i = 0; i < 2 * CREATIONS; i++) {
        double begin = now();
        if (i % 2)
            MPI_Comm_split(MPI_COMM_SELF, 0, 0, &made);
        else
            MPI_Comm_dup(MPI_COMM_SELF, &made);
        double end = now();
        MPI_Comm_free(&made);
        keep(i % 2 ? &split : &dup, end - begin);
        keep(&release, now() - end);
    }
    printf("create dup %.1f %.1f\n", at(&dup, 0), at(&dup, 0.5));
    printf("create split %.1f %.1f\n", at(&split, 0), at(&split, 0.5));
    printf("create free %.1f %.1f\n", at(&release, 0), at(&release, 0.5));
}

/* Where the next message begins, so that it comes from no near cache. */
static size_t after(size_t from, size_t extent, size_t room)
{
    return from + 2 * extent > room - 2 * PACKED ? 0 : from + extent;
}

/* Per byte: packing and unpacking of a message in pieces of `block` bytes, `gap` bytes apart. */
static void pack(const char *where, int block, int gap, size_t room)
{
    static struct samples packing, unpacking;
    MPI_Datatype type;
    char *packed = buffer + room - 2 * PACKED;
    size_t extent = (size_t)(PACKED / block) * (size_t)(block + gap), from = 0;
    MPI_Type_create_hvector(PACKED / block, block / 8, block + gap, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    packing.n = packing.seen = unpacking.n = unpacking.seen = 0;
    for (int i = 0; i < PACKINGS; i++) {
        int at = 0, back = 0;
        double begin = now();
        MPI_Pack(buffer + from, 1, type, packed, 2 * PACKED, &at, MPI_COMM_SELF);
        keep(&packing, (now() - begin) / PACKED);
        from = after(from, extent, room);
        begin = now();
        MPI_Unpack(packed, at, &back, buffer + from, 1, type, MPI_COMM_SELF);
        keep(&unpacking, (now() - begin) / PACKED);
        from = after(from, extent, room);
    }
    MPI_Type_free(&type);
    printf("pack %s %d %.4f %.4f %.4f %.4f\n", where, block, at(&packing, 0), at(&packing, 0.5),
           at(&unpacking, 0), at(&unpacking, 0.5));
}

/* What a datatype that is not contiguous costs, and one that is. */
static void packs(size_t room)
{
    pack("whole", PACKED, PACKED, room);
    for (int block = 8; block <= 4096; block *= 8) {
        pack("near", block, block, room);
        pack("far", block, APART, room);
    }
}

/* Which kernel this is, as replay/engine/watchdog.py asks: containers of one are one machine. */
static void boot_id(char kernel[40])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(kernel, 40, file))
        *kernel = 0;
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    int size, length;
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "", names[2][MPI_MAX_PROCESSOR_NAME + 1];
    char kernel[40] = "", kernels[2][40];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size != 2) {
        fprintf(stderr, "network: %d ranks, not 2\n", size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t bytes = (size_t)LEAST * MOST > WINDOW ? (size_t)LEAST * MOST : WINDOW;
    buffer = malloc(bytes);
    if (!buffer)
        MPI_Abort(MPI_COMM_WORLD, 3);
    memset(buffer, 1, bytes);
    MPI_Get_processor_name(name, &length);
    boot_id(kernel);
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Gather(kernel, sizeof kernel, MPI_CHAR, kernels, sizeof kernel, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        measure(atof(argv[1]));
        creating();
        packs(bytes);
    }
    else
        serve();
    int core = sched_getcpu(), cores[2];
    MPI_Gather(&core, 1, MPI_INT, cores, 1, MPI_INT, 0, MPI_COMM_WORLD);
    int one = rank == 0 && *kernel && !memcmp(kernels[0], kernels[1], sizeof kernel);
    for (int i = 0; rank == 0 && i < 2; i++)
        printf("rank %d %s %d\n", i, names[one ? 0 : i], cores[i]);
    MPI_Finalize();
    return 0;
}
