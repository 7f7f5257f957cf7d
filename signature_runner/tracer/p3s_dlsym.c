/* Programs that open the MPI library themselves (dlopen) and look its functions up: they get the
 * wrappers, behind which the library is that of their handle. */
#include "p3s_inside.h"

#include <dlfcn.h>
#include <strings.h>

void *p3s_opened_mpi;           /* the library in which a function was looked up first */

#if defined(__GLIBC__) && !defined(P3S_ARCHIVE) && !defined(P3S_INSIDE_PROGRAM)

typedef void *(*lookup)(void *, const char *);
static lookup real;
static void *own_handle, *own_base;

/* dlsym itself cannot be looked up with dlsym. Its versions: of processors, and since glibc 2.34. */
__attribute__((constructor(101))) static void find_real(void)
{
    static const char *const versions[] = {
        "GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27", "GLIBC_2.36", "GLIBC_2.4",
        "GLIBC_2.2", "GLIBC_2.1", "GLIBC_2.0", NULL};
    Dl_info self;
    for (int i = 0; versions[i] && !real; i++)
        real = (lookup)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (dladdr((void *)find_real, &self) && self.dli_fname) {
        own_base = self.dli_fbase;
        own_handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
}

static bool is_own(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fbase == own_base;
}

/* The wrapper of a function of the library behind a handle, NULL where there is none. */
__attribute__((noinline)) static void *wrapper_of(void *handle, const char *name, void *ra)
{
    Dl_info info;
    void *theirs, *wrapper = NULL;
    if (!own_handle || is_own(ra) || !(theirs = real(handle, name)) || is_own(theirs))
        return NULL;
    wrapper = real(own_handle, name);
    if (!wrapper || !is_own(wrapper))
        return NULL;
    if (!p3s_opened_mpi && dladdr(theirs, &info) && info.dli_fname)
        p3s_opened_mpi = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return p3s_opened_mpi ? wrapper : NULL;
}

/* RTLD_NEXT means: behind the caller. So the real function is called last, in the place of this
 * one, which leaves the return address as it is. */
P3S_EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    void *wrapper = NULL;
    if (__builtin_expect(!real, 0))
        find_real();
    if (handle != RTLD_NEXT && handle != RTLD_DEFAULT &&
        !strncasecmp(name + (*name == 'P' || *name == 'p'), "mpi_", 4))
        wrapper = wrapper_of(handle, name, P3S_RA);
    return wrapper ? wrapper : real(handle, name);
}

#endif
