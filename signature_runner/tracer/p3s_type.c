/* Datatypes in bytes and basic elements, by local MPI calls only. */
#include "p3s_inside.h"

#include <stdlib.h>

/* What was asked lately; emptied of a type when that is freed. Needs p3s_lock. */
static struct { uint64_t key; int64_t size; uint32_t element; bool used; } seen[256];

int64_t p3s_types_freed;

static size_t place_of(MPI_Datatype type)
{
    return p3s_mix(P3S_HANDLE(type)) % (sizeof seen / sizeof *seen);
}

int64_t p3s_type_bytes(MPI_Datatype type)
{
    MPI_Count size = 0;
    if (type == p3s_mpi.type_null || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    return size;
}

#ifdef P3S_HAVE_Type_get_envelope_c
typedef MPI_Count envelope_count;
#define ENVELOPE(t, i, a, d, c, combiner)                                                        \
    (c = 0, PMPI_Type_get_envelope_c(t, &i, &a, &c, &d, &combiner))
#define CONTENTS(t, i, a, c, d, ip, ap, cp, dp)                                                  \
    PMPI_Type_get_contents_c(t, i, a, c, d, ip, ap, cp, dp)
#else
typedef int envelope_count;
#define ENVELOPE(t, i, a, d, c, combiner)                                                        \
    (c = 0, PMPI_Type_get_envelope(t, &i, &a, &d, &combiner))
#define CONTENTS(t, i, a, c, d, ip, ap, cp, dp) PMPI_Type_get_contents(t, i, a, d, ip, ap, dp)
#endif

/* Bytes of the one kind of basic element a datatype is made of: 0 nothing, -1 several kinds. */
static int element_of(MPI_Datatype type, int depth)
{
    envelope_count ints, addresses, counts, inner;
    int combiner, element = 0;
    if (ENVELOPE(type, ints, addresses, inner, counts, combiner) != MPI_SUCCESS)
        return -1;
    if (combiner == MPI_COMBINER_NAMED || inner == 0 || depth > 64)
        return (int)p3s_type_bytes(type);
    int *ip = malloc(sizeof(int) * (size_t)(ints + 1));
    MPI_Aint *ap = malloc(sizeof(MPI_Aint) * (size_t)(addresses + 1));
    MPI_Count *cp = malloc(sizeof(MPI_Count) * (size_t)(counts + 1));
    MPI_Datatype *dp = malloc(sizeof(MPI_Datatype) * (size_t)(inner + 1));
    if (!ip || !ap || !cp || !dp ||
        CONTENTS(type, ints, addresses, counts, inner, ip, ap, cp, dp) != MPI_SUCCESS) {
        element = -1;
        inner = 0;
    }
    for (envelope_count i = 0; i < inner; i++) {
        int one = element_of(dp[i], depth + 1);
        if (one != 0)
            element = element == 0 || element == one ? one : -1;
        int ni, na, nd, kind;
        /* Derived types come out as new references; predefined ones must not be freed. */
#ifdef P3S_HAVE_Type_get_envelope_c
        MPI_Count li, la, lc, ld;
        bool asked = PMPI_Type_get_envelope_c(dp[i], &li, &la, &lc, &ld, &kind) == MPI_SUCCESS;
        (void)ni, (void)na, (void)nd;
#else
        bool asked = PMPI_Type_get_envelope(dp[i], &ni, &na, &nd, &kind) == MPI_SUCCESS;
#endif
        if (asked && kind != MPI_COMBINER_NAMED && kind != MPI_COMBINER_F90_REAL &&
            kind != MPI_COMBINER_F90_INTEGER && kind != MPI_COMBINER_F90_COMPLEX)
            PMPI_Type_free(&dp[i]);
    }
    free(ip);
    free(ap);
    free(cp);
    free(dp);
    return element;
}

void p3s_type_info(MPI_Datatype type, int64_t *size, uint32_t *element)
{
    size_t at = place_of(type);
    if (!seen[at].used || seen[at].key != P3S_HANDLE(type)) {
        int64_t bytes = p3s_type_bytes(type);
        int one = type == p3s_mpi.type_null || bytes <= 0 ? 1 : element_of(type, 0);
        seen[at].key = P3S_HANDLE(type);
        seen[at].size = bytes;
        seen[at].element = one < 1 ? 1 : (uint32_t)one;
        seen[at].used = true;
    }
    *size = seen[at].size;
    *element = seen[at].element;
}

void p3s_type_free(MPI_Datatype type)
{
    /* Also inside another call, in a delete callback, where the lock may be held: nobody uses the
     * type any more, and to forget another one by mistake does no harm. */
    size_t at = place_of(type);
    __atomic_fetch_add(&p3s_types_freed, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&seen[at].key, __ATOMIC_RELAXED) == P3S_HANDLE(type))
        __atomic_store_n(&seen[at].used, false, __ATOMIC_RELAXED);
}
