/* Passing time: emulated computation, waits until a given time, naps. */

enum {
    EARLY_NS = 100000,         /* a sleep ends this long before the time when a spin may finish */
    SHORTEST_NS = 20000,       /* no sleep is shorter than this and the overshoot */
    POKE_NS = 100000,          /* MPI is given the chance to move messages this often */
    FIRST_NAP_NS = 50000,
    LONGEST_NAP_NS = 800000,
    LONGEST_SLEEP_NS = 500000000
};

/* The least timer slack, for this sleep only: MPI libraries that sleep while they wait count on
 * the usual slack to leave the core to others. */
static void sleep_ns(int64_t duration_ns)
{
    struct timespec t = {duration_ns / 1000000000, duration_ns % 1000000000};
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
    prctl(PR_SET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
}

static int bucket_of(int64_t duration_ns)
{
    int bucket = 0;
    for (int64_t us = duration_ns / 1000; us > 1 && bucket < BUCKETS - 1; us >>= 1)
        bucket++;
    return bucket;
}

/* Sleep and note how much longer it took: the estimate follows the median, as every sleep moves
 * it by the same amount up or down. Returns how long it was. */
static int64_t measured_sleep(struct clockwork *w, int64_t duration_ns)
{
    int64_t begin_ns = now_ns();
    sleep_ns(duration_ns);
    int64_t took_ns = now_ns() - begin_ns;
    int64_t *estimate = &w->overshoot_ns[bucket_of(duration_ns)];
    int64_t step_ns = *estimate / 32 + 200;
    *estimate += took_ns - duration_ns > *estimate ? step_ns : -step_ns;
    if (*estimate < 0)
        *estimate = 0;
    return took_ns;
}

/* Measure the overshoot of sleeps of some lengths; those between take that of the next longer. */
static void calibrate(struct clockwork *w)
{
    static const int64_t lengths_ns[] = {20000, 100000, 1000000, 5000000};
    enum { LENGTHS = 4, ROUNDS = 9 };
    int bucket = 0;
    for (int i = 0; i < LENGTHS; i++) {
        int64_t found[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            int64_t begin_ns = now_ns();
            sleep_ns(lengths_ns[i]);
            int64_t over_ns = now_ns() - begin_ns - lengths_ns[i];
            int place = round;
            for (; place > 0 && found[place - 1] > over_ns; place--)
                found[place] = found[place - 1];
            found[place] = over_ns;
        }
        int last = i == LENGTHS - 1 ? BUCKETS - 1 : bucket_of(lengths_ns[i]);
        for (; bucket <= last; bucket++)
            w->overshoot_ns[bucket] = found[ROUNDS / 2];
    }
}

static void spin_until(int64_t time_ns)
{
    while (now_ns() < time_ns)
        ;
}

/* Sleep until a time of this machine's clock; sleeps that end too early are not repeated when
 * what is left is less than a sleep takes. */
static void sleep_until(struct clockwork *w, int64_t time_ns, struct progress *p)
{
    for (;;) {
        int64_t left_ns = time_ns - now_ns();
        int64_t over_ns = w->shared_cores ? w->overshoot_ns[bucket_of(left_ns)] : EARLY_NS;
        if (left_ns <= over_ns + (w->shared_cores ? 0 : SHORTEST_NS))
            break;
        int64_t sleep = left_ns - over_ns;
        if (sleep > LONGEST_SLEEP_NS)
            sleep = LONGEST_SLEEP_NS;
        measured_sleep(w, sleep);
        p->beats++;
    }
    if (!w->shared_cores)
        spin_until(time_ns);
}

/* Pass the time that the computation takes. Where processes share cores nothing is spun: sleeps
 * are cut short by what they usually overshoot, pieces that are too short are put together, and
 * what one took too long is taken off the next. */
static void compute(struct clockwork *w, int64_t work_ns, struct progress *p)
{
    int64_t begin_ns = now_ns(), end_ns = begin_ns;
    w->debt_ns += work_ns;
    if (w->debt_ns > 0) {
        int64_t shortest_ns = w->shared_cores
            ? SHORTEST_NS / 2 + w->overshoot_ns[bucket_of(w->debt_ns)] : 0;
        if (w->debt_ns > shortest_ns) {
            sleep_until(w, begin_ns + w->debt_ns, p);
            end_ns = now_ns();
        }
        w->debt_ns -= end_ns - begin_ns;
    }
    if (w->errors < w->errors_room)
        w->errors_ns[w->errors++] = end_ns - begin_ns - work_ns;
}

/* Let the MPI library move messages. The communicator carries none: a probe that finds one would
 * return without doing anything else. */
static int poke(MPI_Comm quiet)
{
    int found;
    return MPI_Iprobe(MPI_ANY_SOURCE, 0, quiet, &found, MPI_STATUS_IGNORE);
}

/* Wait until a time without holding up messages and without keeping the core from others: what is
 * left in the end is shorter than any sleep, then whoever else wants the core gets it. */
static int wait_until(struct loop *s, int64_t time_ns)
{
    struct clockwork *w = &s->work;
    for (;;) {
        int64_t left_ns = time_ns - now_ns();
        int64_t over_ns = w->overshoot_ns[bucket_of(POKE_NS)];
        if (left_ns < POKE_NS + over_ns)
            break;
        int error = poke(s->quiet);
        if (error != MPI_SUCCESS)
            return error;
        measured_sleep(w, POKE_NS > over_ns + SHORTEST_NS ? POKE_NS - over_ns : SHORTEST_NS);
        s->progress->beats++;
    }
    int error = poke(s->quiet);
    sleep_until(w, time_ns, s->progress);
    while (error == MPI_SUCCESS && now_ns() < time_ns) {
        sched_yield();
        error = poke(s->quiet);
    }
    return error;
}

/* Wait for a request without keeping the core busy, by longer and longer naps. */
static int nap_for(MPI_Request *request)
{
    int64_t nap_ns = FIRST_NAP_NS;
    for (;;) {
        int done, error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS || done)
            return error;
        sleep_ns(nap_ns);
        nap_ns = 2 * nap_ns < LONGEST_NAP_NS ? 2 * nap_ns : LONGEST_NAP_NS;
    }
}
