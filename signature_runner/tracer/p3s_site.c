/* Call sites: the whole call stack of an MPI call as module-relative return addresses, and the
 * Python stack above it when a Python interpreter made the call.
 *
 * Unwinding costs microseconds, so each thread remembers stacks by (return address, frame
 * address). A remembered stack is right if every slot that held a return address still holds
 * it: the same code at the same depth lays out its frames in the same way. */
#include "p3s_inside.h"
#include "p3s_phase.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#define BUCKETS 4096
#define MAX_CACHED_FRAMES 400000    /* of all remembered stacks of a thread: 16 bytes each */
#define DEEPEST 100000

struct p3s_site_cache { size_t frames; struct p3s_stack *bucket[BUCKETS]; };

static struct p3s_map sites;    /* key -> site number + 1; needs p3s_lock */
static uint32_t site_count;

/* Number of the site with this key; writes its record when it is new. */
uint32_t p3s_intern(uint64_t key, int frames, char *const *text)
{
    struct { uint32_t number, frames; uint64_t key; } head;
    p3s_hold();
    uintptr_t known = (uintptr_t)p3s_map_get(&sites, key);
    if (!known) {
        size_t bytes = 0, at = 0;
        for (int i = 0; i < frames; i++)
            bytes += strlen(text[i]) + 1;
        char *joined = malloc(bytes + 1);
        for (int i = 0; i < frames && joined; i++) {
            size_t n = strlen(text[i]) + 1;
            memcpy(joined + at, text[i], n);
            at += n;
        }
        head.number = site_count++;
        head.frames = joined ? (uint32_t)frames : 0;
        head.key = key;
        p3s_define(P3S_REC_SITE, &head, sizeof head, joined, joined ? bytes : 0);
        free(joined);
        known = (uintptr_t)head.number + 1;
        p3s_map_put(&sites, key, (void *)known);
        p3s_phase_site(head.number, key);
    }
    p3s_let_go();
    return (uint32_t)(known - 1);
}

/* ---- native stacks --------------------------------------------------------------------------- */

struct walk {
    uintptr_t ra;
    int n;
    bool started, checkable;
    bool in_handler;            /* a signal interrupted one of the frames */
    uintptr_t ip[DEEPEST], slot[DEEPEST];
};

/* Where the tracer itself is loaded: no frame in it belongs to a program's stack. */
static uintptr_t own_start, own_bytes;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static int own_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    uintptr_t start = UINTPTR_MAX, end = 0, here = (uintptr_t)&own_module;
    (void)size, (void)argument;
    for (int h = 0; h < info->dlpi_phnum; h++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[h];
        uintptr_t at = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        start = at < start ? at : start;
        end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
    }
    if (here < start || here >= end)
        return 0;
    own_start = start;
    own_bytes = end - start;
    return 1;
}

static void find_own(void)
{
#if !defined(P3S_INSIDE_PROGRAM) && !defined(P3S_ARCHIVE)
    dl_iterate_phdr(own_module, NULL);  /* else linked into the program, whose frames are its own */
#endif
}

static _Unwind_Reason_Code one_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *w = argument;
    int interrupted = 0;
    uintptr_t ip = _Unwind_GetIPInfo(context, &interrupted);
    w->in_handler |= interrupted != 0;
    if (w->in_handler)
        return _URC_END_OF_STACK;
    if (!w->started && ip != w->ra)
        return _URC_NO_REASON;  /* of the wrapper */
    w->started = true;
    if (ip - own_start < own_bytes)
        return _URC_NO_REASON;  /* of a shim between program and wrapper */
    if (ip == 0 || w->n == DEEPEST)
        return _URC_END_OF_STACK;
    uintptr_t slot = _Unwind_GetCFA(context) - sizeof(void *);
    w->ip[w->n] = ip;
    w->slot[w->n++] = slot;
#if defined(__x86_64__)
    if (*(uintptr_t *)slot != ip)
        w->checkable = false;
#else
    w->checkable = false;       /* return addresses may live in registers */
#endif
    return _URC_NO_REASON;
}

/* A repeating cycle of return addresses (recursion) becomes one turn of it. Into kept goes what
 * is left of ip, into *turns how many turns were taken out; frames past P3S_MAX_FRAMES are cut. */
static int collapse(const uintptr_t *ip, int n, uintptr_t *kept, uint32_t *turns)
{
    int out = 0;
    *turns = 0;
    for (int i = 0; i < n && out < P3S_MAX_FRAMES; i++) {
        kept[out++] = ip[i];
        for (int p = 1; p <= P3S_MAX_PERIOD && 2 * p <= out; p++)
            if (!memcmp(kept + out - p, kept + out - 2 * p, sizeof *kept * (size_t)p)) {
                out -= p;
                ++*turns;
                break;
            }
    }
    return out;
}

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

struct place { uintptr_t base; bool main, libc; const char *name; };

/* Segments in which frames were found, the same for all stacks until a module is unloaded. */
#define MOST_SEGMENTS 32
static struct { uintptr_t start, end; struct place place; } segments[MOST_SEGMENTS];
static int n_segments;
static unsigned long long unloads;

struct places {                 /* modules of the addresses of one stack, in one pass */
    const uintptr_t *ip;
    int n, module;
    struct place place[P3S_MAX_FRAMES];
};

const char *p3s_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* argv[0] may be anything: the file itself names the program, also when it was removed meanwhile,
 * as a build does that makes it anew. Called one thread at a time, by dl_iterate_phdr. */
static const char *program_name(void)
{
    static char self[4096];
    static const char removed[] = " (deleted)";
    size_t tail = sizeof removed - 1;
    if (!*self) {
        ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
        if (got > (ssize_t)tail && !memcmp(self + got - tail, removed, tail))
            self[got - (ssize_t)tail] = '\0';
    }
    return p3s_base_name(self);
}

/* The places of all addresses, if their segments are known: the loader has a hundred of them. */
static bool from_segments(struct places *p, unsigned long long subs)
{
    int i = 0;
    if (subs != unloads)
        n_segments = 0;
    unloads = subs;
    for (int k; i < p->n; i++) {
        for (k = 0; k < n_segments; k++)
            if (p->ip[i] >= segments[k].start && p->ip[i] < segments[k].end)
                break;
        if (k == n_segments)
            break;
        p->place[i] = segments[k].place;
    }
    if (i < p->n)
        n_segments = 0;         /* they are found anew with the others */
    return i == p->n;
}

static int one_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct places *p = argument;
    (void)size;
    int number = p->module++;
    const char *name = NULL;
    if (number == 0 && from_segments(p, info->dlpi_subs))
        return 1;
    for (int h = 0; h < info->dlpi_phnum; h++) {
        if (info->dlpi_phdr[h].p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[h].p_vaddr;
        uintptr_t end = start + info->dlpi_phdr[h].p_memsz;
        struct place place = {.base = info->dlpi_addr, .main = number == 0};
        for (int i = 0; i < p->n; i++) {
            if (p->ip[i] < start || p->ip[i] >= end)
                continue;
            if (!name)
                name = number == 0 ? program_name() : p3s_base_name(info->dlpi_name);
            place.libc = number != 0 && (begins(name, "libc.") || begins(name, "libc-") ||
                                         begins(name, "libpthread") || begins(name, "ld-"));
            place.name = name;  /* lives as long as the module is loaded */
            p->place[i] = place;
        }
        if (place.name && n_segments < MOST_SEGMENTS)
            segments[n_segments++] = (__typeof__(*segments)){start, end, place};
    }
    return 0;
}

static void free_stack(struct p3s_stack *s)
{
    for (int i = 0; i < s->frames; i++)
        free(s->text[i]);
    free(s->text);
    free(s->slot);
    free(s->expect);
    free(s);
}

/* The MPI library itself makes this call, not a program. */
static bool inside_mpi(const struct place *p)
{
    return !p->main && p->name && (p->base == p3s_mpi_base || begins(p->name, "mca_"));
}

/* The parts of MPI libraries that programs in Fortran and C++ call, and that call MPI for them:
 * their frames say nothing. */
static bool language_layer(const struct place *p)
{
    static const char *const names[] = {"libmpi_", "libmpif", "libmpichf", "libfmpich", "libmpicxx",
                                        "libmpichcxx"};
    for (size_t i = 0; !p->main && p->name && i < sizeof names / sizeof *names; i++)
        if (begins(p->name, names[i]))
            return true;
    return inside_mpi(p);
}

/* Where frames of the C library below main begin, if it is in the program itself. */
static int below_main(const struct places *p, int n)
{
#ifdef P3S_ARCHIVE
    extern int main();
    for (int i = 0; i < n; i++)
        if (_Unwind_FindEnclosingFunction((void *)(p->ip[i] - 1)) == (void *)main)
            return i + 1;
#else
    (void)p;
#endif
    return n;
}

/* Which of the kept frames make the site: *from up to the returned end. */
static int trim(const struct places *p, int n, bool leaf, uintptr_t interpreter, int *from)
{
    int end = below_main(p, n);
    if (leaf) {
        for (end = 0; end < n && p->place[end].base != interpreter; end++) {
        }
        end += end < n;
    } else {
        if (end > 1 && p->place[end - 1].main && p->place[end - 2].libc)
            end--;              /* _start, below __libc_start_main */
        while (end > 1 && p->place[end - 1].libc)
            end--;
    }
    *from = 0;
    while (*from + 1 < end && language_layer(&p->place[*from]))
        ++*from;
    return end;
}

/* What tells that the stack is the same at the next call from here. */
static void remember_slots(struct p3s_stack *s, const struct walk *w, int n)
{
    size_t bytes = sizeof(uintptr_t) * (size_t)n;
    s->checks = -1;
    if (!w->checkable || n <= 0)
        return;
    s->slot = malloc(bytes);
    s->expect = malloc(bytes);
    if (!s->slot || !s->expect)
        return;
    s->checks = n - 1;
    memcpy(s->slot, w->slot + 1, bytes - sizeof(uintptr_t));
    memcpy(s->expect, w->ip + 1, bytes - sizeof(uintptr_t));
}

static void name_frames(struct p3s_stack *s, const struct places *p, int from, int end)
{
    s->text = calloc((size_t)(end - from) + 1, sizeof *s->text);
    for (int i = from; i < end && s->text; i++) {
        char text[P3S_TEXT_BYTES];
        if (p->place[i].name)
            snprintf(text, sizeof text, "%.200s+0x%lx", p->place[i].name,
                     (unsigned long)(p->ip[i] - p->place[i].base));
        else
            snprintf(text, sizeof text, "?"); /* generated code has no stable place */
        if (!(s->text[i - from] = strdup(text)))
            break;
        s->frames = i - from + 1;
        s->key = p3s_hash_text(s->key, text, 0);
    }
}

/* Of each thread: not on the stack, of which there may be very little, and not of the program's
 * memory, of which a handler may not have any. What is not used of it takes no room. */
struct p3s_scratch {
    struct places places;
    uintptr_t kept[P3S_MAX_FRAMES];
    struct walk walk;
};

static struct p3s_scratch *scratch_of(struct p3s_thread *t)
{
    if (!t->scratch) {
        void *got = mmap(NULL, sizeof *t->scratch, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        t->scratch = got == MAP_FAILED ? NULL : got;
    }
    return t->scratch;
}

/* The frames of this call; NULL in a signal handler, or where nobody knows. Nothing is allocated or
 * locked here, and on a handler's own stack, which may be small, nothing is unwound. */
static __attribute__((noinline)) struct walk *walk_from(uintptr_t ra)
{
    struct p3s_scratch *scratch = p3s_on_alternate_stack() ? NULL : scratch_of(&p3s_self);
    if (!scratch)
        return NULL;
    struct walk *w = &scratch->walk;
    w->ra = ra;
    w->n = 0;
    w->started = w->in_handler = false;
    w->checkable = true;
    _Unwind_Backtrace(one_frame, w);
    return w->in_handler ? NULL : w;
}

static __attribute__((noinline)) struct p3s_stack *
stack_from(struct walk *w, uintptr_t ra, uintptr_t fa, bool leaf, uintptr_t interpreter)
{
    struct p3s_scratch *scratch = p3s_self.scratch;
    struct places *p = &scratch->places;
    struct p3s_stack *s = calloc(1, sizeof *s);
    int from;
    if (!s)
        return NULL;
    p3s_device_look();
    if (!w->n) {
        w->ip[w->n++] = ra;
        w->checkable = false;
    }
    s->ra = ra;
    s->fa = fa;
    s->leaf = leaf;
    p->ip = scratch->kept;
    p->n = collapse(w->ip, w->n, scratch->kept, &s->depth);
    p->module = 0;
    memset(&p->place, 0, sizeof p->place[0] * (size_t)p->n);
    dl_iterate_phdr(one_module, p);
    s->inside_mpi = inside_mpi(&p->place[0]);
    int end = trim(p, p->n, leaf, interpreter, &from), checked = w->n;
    if (leaf && end > 0)        /* the slots up to the interpreter decide */
        for (checked = 1; checked < w->n && w->ip[checked - 1] != p->ip[end - 1]; checked++) {
        }
    remember_slots(s, w, checked);
    name_frames(s, p, from, end);
    return s;
}

/* Its pages are asked for now, in MPI_Init, and not one by one by the first calls. */
static struct p3s_site_cache *new_cache(void)
{
    struct p3s_site_cache *cache = calloc(1, sizeof *cache);
    for (size_t b = 0; cache && b < BUCKETS; b += 4096 / sizeof *cache->bucket)
        *(struct p3s_stack *volatile *)&cache->bucket[b] = NULL;
    return cache;
}

static inline size_t bucket_of(uintptr_t ra, uintptr_t fa)
{
    return p3s_mix(ra ^ (uint64_t)fa << 20) & (BUCKETS - 1);
}

/* The stack of this call if the thread remembers it. None that a handler is on is remembered. */
static inline struct p3s_stack *remembered(uintptr_t ra, uintptr_t fa, bool leaf)
{
    struct p3s_site_cache *cache = p3s_self.sites;
    size_t b = bucket_of(ra, fa);
    for (struct p3s_stack *s = cache ? cache->bucket[b] : NULL; s; s = s->next) {
        if (s->ra != ra || s->fa != fa || s->leaf != leaf)
            continue;
        int i = 0;
        while (i < s->checks && *(uintptr_t *)s->slot[i] == s->expect[i])
            i++;
        if (i == s->checks)
            return s;
    }
    return NULL;
}

/* Take the stack of a call that is no handler's as the thread's, and remember it if that can be. */
static void take_stack(struct p3s_thread *t, struct p3s_stack *s, bool known)
{
    struct p3s_stack *before = t->stack_kept ? NULL : t->stack;
    t->stack = s;
    t->stack_kept = known;
    if (before)
        free_stack(before);
    if (known || !s || s->checks < 0)
        return;
    struct p3s_site_cache *cache = t->sites ? t->sites : (t->sites = new_cache());
    if (!cache || cache->frames >= MAX_CACHED_FRAMES)
        return;
    size_t b = bucket_of(s->ra, s->fa);
    s->next = cache->bucket[b];
    cache->bucket[b] = s;
    cache->frames += 16 + (size_t)s->checks;
    t->stack_kept = true;
}

bool p3s_stack(void *ra, void *fa)
{
    struct p3s_thread *t = &p3s_self;
    uintptr_t at = (uintptr_t)ra, frame = (uintptr_t)fa;
    bool leaf = p3s_python_calls();
    struct p3s_stack *s = remembered(at, frame, leaf);
    if (__builtin_expect(s != NULL, 1)) {
        if (s != t->stack)
            take_stack(t, s, true);
        return true;
    }
    struct walk *w = walk_from(at);
    if (!w)
        return false;
    take_stack(t, stack_from(w, at, frame, leaf, p3s_python_base), false);
    return true;
}

void p3s_stack_begin(void)
{
    pthread_once(&own_once, find_own);
    p3s_python_calls();         /* looks for Python, the first time */
}

void p3s_site_thread_end(struct p3s_site_cache *cache)
{
    struct p3s_thread *t = &p3s_self;
    struct p3s_scratch *scratch = t->scratch;
    t->sites = NULL;            /* before they are freed: a signal may come meanwhile */
    t->scratch = NULL;
    __atomic_signal_fence(__ATOMIC_RELEASE);
    take_stack(t, NULL, true);
    if (scratch)
        munmap(scratch, sizeof *scratch);
    for (size_t b = 0; b < BUCKETS; b++)
        for (struct p3s_stack *s = cache->bucket[b], *next; s; s = next) {
            next = s->next;
            free_stack(s);
        }
    free(cache);
}

uint32_t p3s_site(void)
{
    struct p3s_stack *s = p3s_self.stack;
    if (!s)
        return p3s_intern(0, 0, NULL);
    p3s_self.site_depth = s->depth;
    if (s->inside_mpi)
        return P3S_INSIDE_MPI;
    if (s->leaf)
        return p3s_python_site(s);
    if (!s->site_plus_1)
        s->site_plus_1 = p3s_intern(s->key, s->frames, s->text) + 1;
    return s->site_plus_1 - 1;
}
