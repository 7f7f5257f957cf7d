/* Derived datatypes: what arrives, how much it is said to be, packed data. */
#include "conform.h"
#include <stddef.h>

struct particle { double x[3]; int id; char kind; };

static int in[64], out[64];

static void ring(const char *name, MPI_Datatype type, int n, long bytes)
{
    int right = (me + 1) % p, left = (me + p - 1) % p, elements, whole;
    MPI_Request request;
    MPI_Status status;
    memset(in, 0, sizeof in);
    DO(Irecv, bytes, in, n, type, left, 1, MPI_COMM_WORLD, &request);
    DO(Send, bytes, out, n, type, right, 1, MPI_COMM_WORLD);
    DONE(Wait, 1, &request, &status);
    MPI_Get_elements(&status, type, &elements);
    MPI_Get_count(&status, type, &whole);
    say("%s: %d elements, %d, %lx", name, elements, whole, checksum(in, sizeof in));
    DO(Bcast, bytes, out, n, type, p - 1, MPI_COMM_WORLD);
    say("%lx", checksum(out, sizeof out));
}

int main(void)
{
    MPI_Datatype type, inner, wide, kinds[3] = {MPI_DOUBLE, MPI_INT, MPI_CHAR};
    int lengths[3] = {3, 1, 1}, places[3] = {0, 5, 9}, size, position = 0;
    int sizes[2] = {8, 8}, part[2] = {3, 4}, from[2] = {2, 1};
    begin();
    int right = (me + 1) % p, left = (me + p - 1) % p;
    for (int i = 0; i < 64; i++)
        out[i] = me * 64 + i;

    MPI_Type_contiguous(5, MPI_INT, &type);
    MPI_Type_commit(&type);
    ring("contiguous", type, 3, 60);
    MPI_Type_free(&type);
    MPI_Type_vector(4, 2, 8, MPI_INT, &type);
    MPI_Type_commit(&type);
    ring("vector", type, 1, 32);
    MPI_Type_contiguous(2, type, &inner);
    MPI_Type_commit(&inner);
    MPI_Type_free(&type); /* still part of the other */
    ring("of vectors", inner, 1, 64);
    MPI_Type_free(&inner);
    MPI_Type_indexed(3, lengths, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    ring("indexed", type, 2, 40);
    MPI_Type_create_resized(type, 0, 64, &wide);
    MPI_Type_commit(&wide);
    ring("resized", wide, 3, 60);
    MPI_Type_free(&type);
    MPI_Type_free(&wide);
    MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_commit(&type);
    ring("subarray", type, 1, 48);
    MPI_Type_free(&type);
    MPI_Type_dup(MPI_SHORT, &type);
    ring("dup", type, 7, 14);
    MPI_Type_free(&type);

    struct particle mine = {{me, me + 0.5, 2}, me * 3, 'a' + (char)me}, yours = {{0}, 0, 0};
    MPI_Aint struct_places[3] = {offsetof(struct particle, x), offsetof(struct particle, id),
                                 offsetof(struct particle, kind)};
    MPI_Type_create_struct(3, lengths, struct_places, kinds, &inner);
    MPI_Type_create_resized(inner, 0, sizeof(struct particle), &type);
    MPI_Type_commit(&type);
    exchanged("MPI_Sendrecv", 29, 29,
              MPI_Sendrecv(&mine, 1, type, right, 2, &yours, 1, type, left, 2, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE));
    say("struct %g %g %d %c", yours.x[0], yours.x[1], yours.id, yours.kind);
    char space[200];
    MPI_Pack_size(1, type, MPI_COMM_WORLD, &size);
    MPI_Pack(&mine, 1, type, space, sizeof space, &position, MPI_COMM_WORLD);
    say("packed in %d of %d", position, size);
    exchanged("MPI_Sendrecv_replace", position, position,
              MPI_Sendrecv_replace(space, position, MPI_PACKED, right, 3, left, 3, MPI_COMM_WORLD,
                                   MPI_STATUS_IGNORE));
    size = 0;
    MPI_Unpack(space, position, &size, &yours, 1, type, MPI_COMM_WORLD);
    say("unpacked %g %d %c", yours.x[0], yours.id, yours.kind);
    MPI_Type_free(&inner);
    MPI_Type_free(&type);
    end();
    return 0;
}
