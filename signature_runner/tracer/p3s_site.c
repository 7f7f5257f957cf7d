/* Call sites: the whole call stack of an MPI call as module-relative return addresses, and the
 * Python stack above it when a Python interpreter made the call.
 *
 * Unwinding costs microseconds, so each thread remembers stacks by (return address, frame
 * address). A remembered stack is right if every slot that held a return address still holds
 * it: the same code at the same depth lays out its frames in the same way. */
#include "p3s_tracer.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define MAX_FRAMES 512
#define MAX_PERIOD 16
#define BUCKETS 4096
#define MAX_STACKS 65536
#define TEXT_BYTES 320

struct stack {                  /* one unwound native stack */
    uintptr_t ra, fa;
    struct stack *next;
    bool leaf;                  /* cut where the Python interpreter begins */
    int checks;
    uintptr_t *slot, *expect;   /* the return addresses outside the wrapper's own */
    uint64_t key;
    uint32_t site_plus_1;       /* of a native stack that was interned */
    int frames;
    char **text;
};

struct p3s_site_cache { size_t stacks; struct stack *bucket[BUCKETS]; };

static struct p3s_map sites;    /* key -> site number + 1; needs p3s_lock */
static uint32_t site_count;

static uint64_t hash_text(uint64_t key, const char *text, uint64_t extra)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        h = (h ^ *c) * 0x100000001b3u;
    return p3s_mix(p3s_mix(key ^ h) ^ extra);
}

/* Number of the site with this key; writes its record when it is new. */
static uint32_t intern(uint64_t key, int frames, char *const *text)
{
    struct { uint32_t number, frames; uint64_t key; } head;
    pthread_mutex_lock(&p3s_lock);
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
        p3s_append(P3S_REC_SITE, &head, sizeof head, joined, joined ? bytes : 0);
        free(joined);
        known = (uintptr_t)head.number + 1;
        p3s_map_put(&sites, key, (void *)known);
    }
    pthread_mutex_unlock(&p3s_lock);
    return (uint32_t)(known - 1);
}

/* ---- native stacks --------------------------------------------------------------------------- */

struct walk {
    uintptr_t ra, ip[MAX_FRAMES], slot[MAX_FRAMES];
    int n;
    bool started, checkable;
};

static _Unwind_Reason_Code one_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *w = argument;
    uintptr_t ip = _Unwind_GetIP(context);
    if (!w->started && ip != w->ra)
        return _URC_NO_REASON;  /* the tracer's own frames */
    w->started = true;
    if (ip == 0 || w->n == MAX_FRAMES)
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

/* A repeating cycle of return addresses (recursion) becomes one turn of it. */
static int collapse(uintptr_t *ip, int n)
{
    int out = 0;
    for (int i = 0; i < n; i++) {
        ip[out++] = ip[i];
        for (int p = 1; p <= MAX_PERIOD && 2 * p <= out; p++)
            if (!memcmp(ip + out - p, ip + out - 2 * p, sizeof *ip * (size_t)p)) {
                out -= p;
                break;
            }
    }
    return out;
}

struct places {                 /* modules of the addresses of one stack, in one pass */
    const uintptr_t *ip;
    int n, module;
    struct { uintptr_t base; bool main, libc; const char *name; } place[MAX_FRAMES];
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int one_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct places *p = argument;
    (void)size;
    int number = p->module++;
    static char self[4096];     /* the same for every thread */
    const char *name = NULL;
    for (int h = 0; h < info->dlpi_phnum; h++) {
        if (info->dlpi_phdr[h].p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[h].p_vaddr;
        uintptr_t end = start + info->dlpi_phdr[h].p_memsz;
        for (int i = 0; i < p->n; i++) {
            if (p->ip[i] < start || p->ip[i] >= end)
                continue;
            if (!name && number == 0) {
                /* argv[0] may be anything: the file itself names the program. */
                ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
                self[got > 0 ? got : 0] = '\0';
                name = base_name(self);
            } else if (!name) {
                name = base_name(info->dlpi_name);
            }
            p->place[i].base = info->dlpi_addr;
            p->place[i].main = number == 0;
            p->place[i].libc = number != 0 && (!strncmp(name, "libc.", 5) ||
                                               !strncmp(name, "libc-", 5) ||
                                               !strncmp(name, "libpthread", 10) ||
                                               !strncmp(name, "ld-", 3));
            p->place[i].name = name; /* lives as long as the module is loaded */
        }
    }
    return 0;
}

static void free_stack(struct stack *s)
{
    for (int i = 0; i < s->frames; i++)
        free(s->text[i]);
    free(s->text);
    free(s->slot);
    free(s->expect);
    free(s);
}

static struct stack *unwind(uintptr_t ra, uintptr_t fa, bool leaf, uintptr_t interpreter)
{
    struct walk w;
    struct places p;
    struct stack *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    w.ra = ra;
    w.n = 0;
    w.started = false;
    w.checkable = true;
    _Unwind_Backtrace(one_frame, &w);
    if (!w.n) {
        w.ip[w.n++] = ra;
        w.checkable = false;
    }
    s->ra = ra;
    s->fa = fa;
    s->leaf = leaf;

    memset(&p.place, 0, sizeof p.place[0] * (size_t)w.n);
    p.ip = w.ip;
    p.n = w.n;
    p.module = 0;
    dl_iterate_phdr(one_module, &p);
    int n = w.n;
    if (leaf) {
        for (n = 0; n < w.n && p.place[n].base != interpreter; n++) {
        }
        w.n = n < w.n ? n + 1 : n; /* the slots up to the interpreter decide */
    } else {
        if (n > 1 && p.place[n - 1].main && p.place[n - 2].libc)
            n--;                /* _start, below __libc_start_main */
        while (n > 1 && p.place[n - 1].libc)
            n--;
    }
    if (w.checkable && w.n > 0) {
        size_t bytes = sizeof(uintptr_t) * (size_t)w.n;
        s->slot = malloc(bytes);
        s->expect = malloc(bytes);
        s->checks = s->slot && s->expect ? w.n - 1 : -1;
        for (int i = 0; i < s->checks; i++) {
            s->slot[i] = w.slot[i + 1];
            s->expect[i] = w.ip[i + 1];
        }
    } else {
        s->checks = -1;
    }

    uintptr_t kept[MAX_FRAMES];
    memcpy(kept, w.ip, sizeof *kept * (size_t)n);
    int frames = collapse(kept, n);
    s->text = calloc((size_t)frames + 1, sizeof *s->text);
    for (int i = 0, from = 0; i < frames && s->text; i++) {
        char text[TEXT_BYTES];
        for (from = 0; w.ip[from] != kept[i]; from++) {
        }
        if (p.place[from].name)
            snprintf(text, sizeof text, "%.200s+0x%lx", p.place[from].name,
                     (unsigned long)(kept[i] - p.place[from].base));
        else
            snprintf(text, sizeof text, "?"); /* generated code has no stable place */
        s->text[i] = strdup(text);
        if (!s->text[i])
            break;
        s->frames = i + 1;
        s->key = hash_text(s->key, text, 0);
    }
    return s;
}

/* The stack of this call, from the thread's cache if it is known. *keep tells whether the cache
 * owns the result. */
static struct stack *stack_of(uintptr_t ra, uintptr_t fa, bool leaf, uintptr_t interpreter,
                              bool *keep)
{
    struct p3s_site_cache *cache = p3s_self.sites;
    if (!cache)
        cache = p3s_self.sites = calloc(1, sizeof *cache);
    size_t b = p3s_mix(ra ^ (uint64_t)fa << 20) & (BUCKETS - 1);
    for (struct stack *s = cache ? cache->bucket[b] : NULL; s; s = s->next) {
        if (s->ra != ra || s->fa != fa || s->leaf != leaf)
            continue;
        int i = 0;
        while (i < s->checks && *(uintptr_t *)s->slot[i] == s->expect[i])
            i++;
        if (i == s->checks) {
            *keep = true;
            return s;
        }
    }
    struct stack *s = unwind(ra, fa, leaf, interpreter);
    *keep = s && cache && s->checks >= 0 && cache->stacks < MAX_STACKS;
    if (*keep) {
        s->next = cache->bucket[b];
        cache->bucket[b] = s;
        cache->stacks++;
    }
    return s;
}

void p3s_site_thread_end(struct p3s_site_cache *cache)
{
    for (size_t b = 0; b < BUCKETS; b++)
        for (struct stack *s = cache->bucket[b], *next; s; s = next) {
            next = s->next;
            free_stack(s);
        }
    free(cache);
    p3s_self.sites = NULL;
}

/* ---- Python stacks ------------------------------------------------------------------------------ */

typedef struct p3s_object object;

static struct {
    bool asked;
    uintptr_t base;             /* the module that holds the interpreter */
    int (*is_initialized)(void), (*is_finalizing)(void);
    int (*gil_ensure)(void);
    void (*gil_release)(int), *(*this_thread)(void);
    object *(*eval_frame)(void), *(*frame_back)(object *), *(*frame_code)(object *);
    int (*frame_lasti)(object *), (*frame_line)(object *);
    void (*inc)(object *), (*dec)(object *);
    object *(*attribute)(object *, const char *);
    const char *(*utf8)(object *);
    void (*error_fetch)(object **, object **, object **);
    void (*error_restore)(object *, object *, object *), (*error_clear)(void);
} python;

static void find_python(void)
{
    Dl_info info;
    python.asked = true;
    void *ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void *eval = dlsym(RTLD_DEFAULT, "PyEval_GetFrame");
    if (!ensure || !eval || !dladdr(eval, &info))
        return;
#define LOOK(member, name) *(void **)&python.member = dlsym(RTLD_DEFAULT, name)
    LOOK(is_initialized, "Py_IsInitialized");
    LOOK(is_finalizing, "Py_IsFinalizing");
    if (!python.is_finalizing)
        LOOK(is_finalizing, "_Py_IsFinalizing");
    LOOK(gil_release, "PyGILState_Release");
    LOOK(this_thread, "PyGILState_GetThisThreadState");
    LOOK(eval_frame, "PyEval_GetFrame");
    LOOK(frame_back, "PyFrame_GetBack");
    LOOK(frame_code, "PyFrame_GetCode");
    LOOK(frame_lasti, "PyFrame_GetLasti");
    LOOK(frame_line, "PyFrame_GetLineNumber");
    LOOK(inc, "Py_IncRef");
    LOOK(dec, "Py_DecRef");
    LOOK(attribute, "PyObject_GetAttrString");
    LOOK(utf8, "PyUnicode_AsUTF8");
    LOOK(error_fetch, "PyErr_Fetch");
    LOOK(error_restore, "PyErr_Restore");
    LOOK(error_clear, "PyErr_Clear");
    LOOK(gil_ensure, "PyGILState_Ensure");
#undef LOOK
    if (python.is_initialized && python.gil_release && python.this_thread && python.frame_back &&
        python.frame_code && python.frame_line && python.inc && python.dec && python.attribute &&
        python.utf8 && python.error_fetch && python.error_restore && python.error_clear)
        python.base = (uintptr_t)info.dli_fbase;
}

static bool python_calls(void)
{
    if (!python.asked)
        find_python();
    return python.base && python.is_initialized() &&
           !(python.is_finalizing && python.is_finalizing()) && python.this_thread();
}

struct py_frame { object *code; int at; }; /* at: last instruction, or line before Python 3.11 */

struct py_site {
    uint64_t leaf_key;
    int n;
    uint32_t site;
    struct py_site *next;
    struct py_frame frame[];
};

static struct py_site *py_sites[BUCKETS]; /* guarded by py_lock; code objects are kept alive */
static pthread_mutex_t py_lock = PTHREAD_MUTEX_INITIALIZER;

static int same_frames(const struct py_frame *a, const struct py_frame *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].code != b[i].code || a[i].at != b[i].at)
            return 0;
    return 1;
}

static void copy_attribute(object *code, const char *name, const char *other, char *out,
                           size_t bytes)
{
    object *value = python.attribute(code, name);
    if (!value && other) {
        python.error_clear();
        value = python.attribute(code, other);
    }
    const char *text = value ? python.utf8(value) : NULL;
    snprintf(out, bytes, "%s", text ? text : "?");
    if (value)
        python.dec(value);
    python.error_clear();
}

/* Needs the GIL. Collects frames innermost first, recursion collapsed; lines beside them. The
 * caller owns one reference to each code object. */
static int python_frames(struct py_frame *frame, int *line)
{
    int n = 0, steps = 0;
    object *f = python.eval_frame();
    if (f)
        python.inc(f);
    while (f && n < MAX_FRAMES && steps++ < 100000) {
        object *back = python.frame_back(f);
        frame[n].code = python.frame_code(f);
        line[n] = python.frame_lasti ? -1 : python.frame_line(f);
        frame[n].at = python.frame_lasti ? python.frame_lasti(f) : line[n];
        n++;
        for (int p = 1; p <= MAX_PERIOD && 2 * p <= n; p++)
            if (same_frames(frame + n - p, frame + n - 2 * p, p)) {
                for (int i = n - p; i < n; i++)
                    python.dec(frame[i].code);
                n -= p;
                break;
            }
        python.dec(f);
        f = back;
    }
    if (f)
        python.dec(f);
    return n;
}

/* Line of each kept frame, by a second walk; only for sites that are new. */
static void python_lines(const struct py_frame *frame, int *line, int n)
{
    object *f = python.eval_frame();
    if (f)
        python.inc(f);
    for (int i = 0; f;) {
        object *back = python.frame_back(f), *code = python.frame_code(f);
        int at = python.frame_lasti ? python.frame_lasti(f) : python.frame_line(f);
        for (int k = i; k < n; k++)
            if (frame[k].code == code && frame[k].at == at && line[k] < 0) {
                line[k] = python.frame_line(f);
                i = k;
                break;
            }
        python.dec(code);
        python.dec(f);
        f = back;
    }
}

static uint32_t new_python_site(const struct stack *leaf, const struct py_frame *frame, int *line,
                                int n)
{
    object *error[3];
    uint64_t key = leaf->key;
    char **text = calloc((size_t)(leaf->frames + n) + 1, sizeof *text);
    if (!text)
        return intern(key, 0, NULL);
    python.error_fetch(&error[0], &error[1], &error[2]);
    python_lines(frame, line, n);
    memcpy(text, leaf->text, sizeof *text * (size_t)leaf->frames);
    for (int i = 0; i < n; i++) {
        char file[512], name[160], whole[TEXT_BYTES];
        copy_attribute(frame[i].code, "co_filename", NULL, file, sizeof file);
        copy_attribute(frame[i].code, "co_qualname", "co_name", name, sizeof name);
        snprintf(whole, sizeof whole, "%.120s:%s:%d", base_name(file), name, line[i]);
        text[leaf->frames + i] = strdup(whole);
        key = hash_text(key, whole, (uint64_t)(int64_t)frame[i].at);
    }
    python.error_restore(error[0], error[1], error[2]);
    int frames = leaf->frames;
    while (frames < leaf->frames + n && text[frames])
        frames++;
    uint32_t site = intern(key, frames, text);
    for (int i = leaf->frames; i < leaf->frames + n; i++)
        free(text[i]);
    free(text);
    return site;
}

static uint32_t python_site(const struct stack *leaf)
{
    struct py_frame frame[MAX_FRAMES];
    int line[MAX_FRAMES];
    /* mpi4py gives the interpreter lock away during MPI calls: take it for the walk. */
    int state = python.gil_ensure();
    int n = python_frames(frame, line);
    uint64_t h = leaf->key;
    for (int i = 0; i < n; i++)
        h = p3s_mix(h ^ (uintptr_t)frame[i].code) + (uint64_t)(int64_t)frame[i].at;
    size_t b = p3s_mix(h) & (BUCKETS - 1);
    struct py_site *s;
    pthread_mutex_lock(&py_lock);
    for (s = py_sites[b]; s; s = s->next)
        if (s->leaf_key == leaf->key && s->n == n && same_frames(s->frame, frame, n))
            break;
    pthread_mutex_unlock(&py_lock);
    uint32_t site;
    if (s) {
        site = s->site;
        for (int i = 0; i < n; i++)
            python.dec(frame[i].code);
    } else {
        site = new_python_site(leaf, frame, line, n);
        s = malloc(sizeof *s + sizeof *frame * (size_t)n);
        if (s) {
            s->leaf_key = leaf->key;
            s->n = n;
            s->site = site;
            memcpy(s->frame, frame, sizeof *frame * (size_t)n);
            pthread_mutex_lock(&py_lock);
            s->next = py_sites[b];
            py_sites[b] = s;
            pthread_mutex_unlock(&py_lock);
        }
    }
    python.gil_release(state);
    return site;
}

uint32_t p3s_site(void *ra, void *fa)
{
    bool keep, leaf = python_calls();
    struct stack *s = stack_of((uintptr_t)ra, (uintptr_t)fa, leaf, python.base, &keep);
    if (!s)
        return intern(0, 0, NULL);
    uint32_t site;
    if (leaf) {
        site = python_site(s);
    } else {
        if (!s->site_plus_1)
            s->site_plus_1 = intern(s->key, s->frames, s->text) + 1;
        site = s->site_plus_1 - 1;
    }
    if (!keep)
        free_stack(s);
    return site;
}
