/* Is a buffer memory of a device? The runtime that the program has loaded is asked (CUDA's driver or
 * runtime, HIP's), nothing is linked and nothing is loaded. Where there is none a message costs one
 * test of a flag; whether one was loaded meanwhile is looked at when a call comes from a new place. */
#include "p3s_inside.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

bool p3s_devices;

/* cuda.h: CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE; managed memory is of that type. */
enum { CU_MEMORY_TYPE = 2, CU_DEVICE = 2 };
/* driver_types.h and, since ROCm 6, hip_runtime_api.h: cudaMemoryTypeDevice, cudaMemoryTypeManaged. */
enum { DEVICE = 2, MANAGED = 3 };
/* HIP before version 6: hipMemoryTypeDevice, hipMemoryTypeManaged. */
enum { OLD_HIP_DEVICE = 1, OLD_HIP_MANAGED = 4, NEW_HIP = 60000000 };

struct attributes { int type; char others[252]; };    /* larger than any version's */

static struct {
    int (*driver)(void *data, int attribute, uint64_t pointer);         /* cuPointerGetAttribute */
    int (*cuda)(struct attributes *, const void *);     /* cudaPointerGetAttributes */
    int (*cuda_error)(void);                            /* cudaGetLastError */
    int (*hip)(struct attributes *, const void *);      /* hipPointerGetAttributes */
    int (*hip_error)(void);
    bool old_hip;
} ask;

static unsigned long long loads_seen;

static bool begins(const char *name, const char *with) { return !strncmp(name, with, strlen(with)); }

static void from_library(const char *path)
{
    const char *name = p3s_base_name(path);
    if (!begins(name, "libcuda.so") && !begins(name, "libcudart.so") &&
        !begins(name, "libamdhip64.so"))
        return;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return;
    if (begins(name, "libcuda.so")) {
        *(void **)&ask.driver = dlsym(library, "cuPointerGetAttribute");
    } else if (begins(name, "libcudart.so")) {
        *(void **)&ask.cuda = dlsym(library, "cudaPointerGetAttributes");
        *(void **)&ask.cuda_error = dlsym(library, "cudaGetLastError");
    } else {
        int version = 0, (*version_of)(int *);
        *(void **)&version_of = dlsym(library, "hipRuntimeGetVersion");
        ask.old_hip = !version_of || version_of(&version) || version < NEW_HIP;
        *(void **)&ask.hip_error = dlsym(library, "hipGetLastError");
        *(void **)&ask.hip = dlsym(library, "hipPointerGetAttributes");
    }
    dlclose(library);           /* the program's own reference stays */
    p3s_devices = ask.driver || ask.cuda || ask.hip;
}

static char found[4][512];
static int n_found;

static int one_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size, (void)argument;
    if (info->dlpi_adds == loads_seen)
        return 1;
    const char *name = info->dlpi_name ? info->dlpi_name : "";
    if ((strstr(name, "libcuda") || strstr(name, "libamdhip")) && n_found < 4 &&
        strlen(name) < sizeof found[0])
        strcpy(found[n_found++], name); /* opened below: not while the loader is locked */
    return 0;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    *(unsigned long long *)argument = info->dlpi_adds;
    return 1;
}

void p3s_device_look(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned long long loads = 0;
    dl_iterate_phdr(count_loads, &loads);
    if (loads == __atomic_load_n(&loads_seen, __ATOMIC_RELAXED) || pthread_mutex_trylock(&lock))
        return;
    n_found = 0;
    dl_iterate_phdr(one_module, NULL);
    for (int i = 0; i < n_found; i++)
        from_library(found[i]);
    __atomic_store_n(&loads_seen, loads, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
}

static bool of_a_device(const void *pointer)
{
    unsigned type = 0;
    struct attributes a = {0};
    if (!pointer || pointer == MPI_IN_PLACE || pointer == MPI_BOTTOM)
        return false;
    if (ask.driver && !ask.driver(&type, CU_MEMORY_TYPE, (uint64_t)(uintptr_t)pointer))
        return type == CU_DEVICE;
    if (ask.cuda && !ask.driver) {
        if (!ask.cuda(&a, pointer))
            return a.type == DEVICE || a.type == MANAGED;
        if (ask.cuda_error)
            ask.cuda_error();   /* an error that the program would find */
    }
    if (ask.hip) {
        if (!ask.hip(&a, pointer))
            return ask.old_hip ? a.type == OLD_HIP_DEVICE || a.type == OLD_HIP_MANAGED
                               : a.type == DEVICE || a.type == MANAGED;
        if (ask.hip_error)
            ask.hip_error();
    }
    return false;
}

uint32_t p3s_device_memory(const void *sent, const void *received)
{
    return (of_a_device(sent) ? P3S_DEVICE_SENT : 0) |
           (of_a_device(received) ? P3S_DEVICE_RECEIVED : 0);
}
