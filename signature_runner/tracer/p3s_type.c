/* Datatypes in bytes, basic elements and pieces, by local MPI calls only. */
#include "p3s_inside.h"

#include <stdlib.h>

/* What was asked lately; emptied of a type when that is freed. Needs p3s_lock. */
static struct { uint64_t key; struct p3s_type facts; bool used; } seen[256];

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

/* How a datatype lies in memory: bytes of the one kind of basic element it is made of (0 nothing, -1
 * several kinds), its pieces, and whether several of it in a row are one piece. */
struct shape { int element; int64_t pieces; bool solid; };

/* What get_envelope and get_contents say; counts are of types that were made with large ones. */
struct contents {
    int combiner, *ints;
    envelope_count n_ints, n_addresses, n_counts, n_types;
    MPI_Aint *addresses;
    MPI_Count *counts;
    MPI_Datatype *types;
};

static bool is_solid(MPI_Datatype type, int64_t size)
{
    MPI_Count lb, extent, true_lb, true_extent;
    return PMPI_Type_get_extent_x(type, &lb, &extent) == MPI_SUCCESS &&
           PMPI_Type_get_true_extent_x(type, &true_lb, &true_extent) == MPI_SUCCESS &&
           extent == size && true_extent == size;
}

static int64_t pieces_of(const struct shape *s, int64_t count)
{
    return count <= 0 ? 0 : s->solid ? 1 : count * s->pieces;
}

/* Rows of a subarray: dimensions that are taken whole belong to the row. */
static int64_t subarray_rows(const int *ints, int dims, bool fortran)
{
    const int *sizes = ints + 1, *parts = ints + 1 + dims;
    int64_t rows = 1;
    bool whole = true;
    for (int i = 0; i < dims; i++) {
        int d = fortran ? i : dims - 1 - i;
        if (!whole)
            rows *= parts[d];
        whole = whole && parts[d] == sizes[d];
    }
    return rows;
}

/* Pieces of one that was made of others, 0 if that is not known. */
static int64_t pieces_inside(const struct contents *c, const struct shape *inner)
{
    const int *v = c->ints;
    int64_t pieces = 0;
    if (c->n_counts)
        return 0;
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        return inner->pieces;
    case MPI_COMBINER_CONTIGUOUS:
        return pieces_of(inner, v[0]);
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
        return v[0] * pieces_of(inner, v[1]);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
        for (int i = 0; i < v[0]; i++)
            pieces += pieces_of(inner, v[1 + i]);
        return pieces;
    case MPI_COMBINER_STRUCT:
        for (int i = 0; i < v[0]; i++)
            pieces += pieces_of(&inner[i], v[1 + i]);
        return pieces;
    case MPI_COMBINER_SUBARRAY:
        pieces = subarray_rows(v, v[0], v[3 * v[0] + 1] == MPI_ORDER_FORTRAN);
        return inner->solid ? pieces : 0;
    default:
        return 0;
    }
}

static bool get_contents(MPI_Datatype type, struct contents *c)
{
    c->ints = malloc(sizeof(int) * (size_t)(c->n_ints + 1));
    c->addresses = malloc(sizeof(MPI_Aint) * (size_t)(c->n_addresses + 1));
    c->counts = malloc(sizeof(MPI_Count) * (size_t)(c->n_counts + 1));
    c->types = malloc(sizeof(MPI_Datatype) * (size_t)(c->n_types + 1));
    return c->ints && c->addresses && c->counts && c->types &&
           CONTENTS(type, c->n_ints, c->n_addresses, c->n_counts, c->n_types, c->ints,
                    c->addresses, c->counts, c->types) == MPI_SUCCESS;
}

static void forget_contents(struct contents *c)
{
    free(c->ints);
    free(c->addresses);
    free(c->counts);
    free(c->types);
}

/* Derived types come out of contents as new references; predefined ones must not be freed. */
static void free_reference(MPI_Datatype type)
{
    int kind;
#ifdef P3S_HAVE_Type_get_envelope_c
    MPI_Count li, la, lc, ld;
    bool asked = PMPI_Type_get_envelope_c(type, &li, &la, &lc, &ld, &kind) == MPI_SUCCESS;
#else
    int ni, na, nd;
    bool asked = PMPI_Type_get_envelope(type, &ni, &na, &nd, &kind) == MPI_SUCCESS;
#endif
    if (asked && kind != MPI_COMBINER_NAMED && kind != MPI_COMBINER_F90_REAL &&
        kind != MPI_COMBINER_F90_INTEGER && kind != MPI_COMBINER_F90_COMPLEX)
        PMPI_Type_free(&type);
}

static struct shape shape_of(MPI_Datatype type, int depth)
{
    struct contents c = {0};
    struct shape own = {-1, 1, false}, *inner = NULL;
    int64_t size = p3s_type_bytes(type);
    own.solid = is_solid(type, size);
    if (ENVELOPE(type, c.n_ints, c.n_addresses, c.n_types, c.n_counts, c.combiner) != MPI_SUCCESS)
        return own;
    if (c.combiner == MPI_COMBINER_NAMED || c.n_types == 0 || depth > 64) {
        own.element = (int)size;
        return own;
    }
    bool known = get_contents(type, &c) &&
                 (inner = calloc((size_t)c.n_types, sizeof *inner)) != NULL;
    own.element = known ? 0 : -1;
    for (envelope_count i = 0; known && i < c.n_types; i++) {
        inner[i] = shape_of(c.types[i], depth + 1);
        int one = inner[i].element;
        if (one != 0)
            own.element = own.element == 0 || own.element == one ? one : -1;
        free_reference(c.types[i]);
    }
    int64_t pieces = known && !own.solid ? pieces_inside(&c, inner) : 1;
    /* Not known: as many as there are elements. */
    own.pieces = pieces > 0 ? pieces : own.element > 0 ? size / own.element : size;
    forget_contents(&c);
    free(inner);
    return own;
}

static uint32_t block_of(const struct shape *shape, int64_t size)
{
    int64_t block = shape->pieces > 1 ? size / shape->pieces : size;
    return shape->solid ? 0 : block < 1 ? 1 : block > UINT32_MAX ? UINT32_MAX : (uint32_t)block;
}

const struct p3s_type *p3s_type_of(MPI_Datatype type)
{
    size_t at = place_of(type);
    if (!seen[at].used || seen[at].key != P3S_HANDLE(type)) {
        int64_t bytes = p3s_type_bytes(type);
        struct shape one = {1, 1, true};
        if (type != p3s_mpi.type_null && bytes > 0)
            one = shape_of(type, 0);
        seen[at].key = P3S_HANDLE(type);
        seen[at].facts = (struct p3s_type){bytes, one.element < 1 ? 1 : (uint32_t)one.element,
                                           block_of(&one, bytes)};
        seen[at].used = true;
    }
    return &seen[at].facts;
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
