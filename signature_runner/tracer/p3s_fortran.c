/* Fortran completions of no request at all. Everything else from Fortran reaches PMPI_X in the MPI
 * library, and is caught there; but the Fortran layer of Open MPI returns at once from a Waitall
 * or Testall of zero requests, without calling anything. */
#include "p3s_inside.h"

#ifdef OPEN_MPI
typedef MPI_Fint *arg;

static bool nothing_to_do(struct p3s_here *h, uint32_t op, arg count, void *ra, void *fa)
{
    return *count == 0 && p3s_active && p3s_enter(h, op, ra, fa);
}

static void recorded(struct p3s_here *h)
{
    p3s_return(h);
    p3s_completed(h, 0);
    p3s_leave(h);
}

/* Under all names: mpif.h and `use mpi` call the first, the mpi_f08 module the second, or the
 * third where it has to convert a logical. */
#define SHIM(symbol, op, declared, passed)                                                       \
    P3S_EXPORT void symbol declared                                                              \
    {                                                                                            \
        static void (*next) declared;                                                            \
        struct p3s_here h;                                                                       \
        if (!next)                                                                               \
            *(void **)&next = p3s_behind(#symbol, P3S_RA);                                       \
        if (!nothing_to_do(&h, op, a, P3S_RA, P3S_FA)) {                                         \
            next passed;                                                                         \
            return;                                                                              \
        }                                                                                        \
        next passed;                                                                             \
        recorded(&h);                                                                            \
    }
#define BOTH(name, op, declared, passed)                                                         \
    SHIM(mpi_##name##_, op, declared, passed)                                                    \
    SHIM(ompi_##name##_f, op, declared, passed)                                                  \
    SHIM(pmpi_##name##_, op, declared, passed)

BOTH(waitall, P3S_OP_Waitall, (arg a, arg b, arg c, arg e), (a, b, c, e))
BOTH(testall, P3S_OP_Testall, (arg a, arg b, arg c, arg d, arg e), (a, b, c, d, e))
BOTH(waitany, P3S_OP_Waitany, (arg a, arg b, arg c, arg d, arg e), (a, b, c, d, e))
BOTH(testany, P3S_OP_Testany, (arg a, arg b, arg c, arg d, arg e, arg f), (a, b, c, d, e, f))
BOTH(waitsome, P3S_OP_Waitsome, (arg a, arg b, arg c, arg d, arg e, arg f), (a, b, c, d, e, f))
BOTH(testsome, P3S_OP_Testsome, (arg a, arg b, arg c, arg d, arg e, arg f), (a, b, c, d, e, f))
#endif
