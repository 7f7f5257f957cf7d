/* Python call sites: the frames of the interpreter above the native leaf frames, so that two
 * lines of a script that reach MPI through the same extension code are two sites. */
#include "p3s_inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PY_BUCKETS 4096

uintptr_t p3s_python_base;

typedef struct p3s_object object;

static struct {
    bool asked;
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
        p3s_python_base = (uintptr_t)info.dli_fbase;
}

bool p3s_python_calls(void)
{
    if (!python.asked)
        find_python();
    return p3s_python_base && python.is_initialized() &&
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

static struct py_site *py_sites[PY_BUCKETS]; /* guarded by py_lock; code objects are kept alive */
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
    p3s_self.site_depth = 0;
    object *f = python.eval_frame();
    if (f)
        python.inc(f);
    while (f && n < P3S_MAX_FRAMES && steps++ < 100000) {
        object *back = python.frame_back(f);
        frame[n].code = python.frame_code(f);
        line[n] = python.frame_lasti ? -1 : python.frame_line(f);
        frame[n].at = python.frame_lasti ? python.frame_lasti(f) : line[n];
        n++;
        for (int p = 1; p <= P3S_MAX_PERIOD && 2 * p <= n; p++)
            if (same_frames(frame + n - p, frame + n - 2 * p, p)) {
                for (int i = n - p; i < n; i++)
                    python.dec(frame[i].code);
                n -= p;
                p3s_self.site_depth++;
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

static uint32_t new_python_site(const struct p3s_stack *leaf, const struct py_frame *frame, int *line,
                                int n)
{
    object *error[3];
    uint64_t key = leaf->key;
    char **text = calloc((size_t)(leaf->frames + n) + 1, sizeof *text);
    if (!text)
        return p3s_intern(key, 0, NULL);
    python.error_fetch(&error[0], &error[1], &error[2]);
    python_lines(frame, line, n);
    memcpy(text, leaf->text, sizeof *text * (size_t)leaf->frames);
    for (int i = 0; i < n; i++) {
        char file[512], name[160], whole[P3S_TEXT_BYTES];
        copy_attribute(frame[i].code, "co_filename", NULL, file, sizeof file);
        copy_attribute(frame[i].code, "co_qualname", "co_name", name, sizeof name);
        snprintf(whole, sizeof whole, "%.120s:%s:%d", p3s_base_name(file), name, line[i]);
        text[leaf->frames + i] = strdup(whole);
        key = p3s_hash_text(key, whole, (uint64_t)(int64_t)frame[i].at);
    }
    python.error_restore(error[0], error[1], error[2]);
    int frames = leaf->frames;
    while (frames < leaf->frames + n && text[frames])
        frames++;
    uint32_t site = p3s_intern(key, frames, text);
    for (int i = leaf->frames; i < leaf->frames + n; i++)
        free(text[i]);
    free(text);
    return site;
}

uint32_t p3s_python_site(const struct p3s_stack *leaf)
{
    struct py_frame frame[P3S_MAX_FRAMES];
    int line[P3S_MAX_FRAMES];
    /* mpi4py gives the interpreter lock away during MPI calls: take it for the walk. */
    int state = python.gil_ensure();
    int n = python_frames(frame, line);
    uint64_t h = leaf->key;
    for (int i = 0; i < n; i++)
        h = p3s_mix(h ^ (uintptr_t)frame[i].code) + (uint64_t)(int64_t)frame[i].at;
    size_t b = p3s_mix(h) & (PY_BUCKETS - 1);
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
