/* MPI's files: what they are, and where in them a call reads or writes. */
#include "p3s_posix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What of a file's view says where its bytes are. */
struct view {
    int64_t start, element;     /* bytes before it, bytes of its elementary type */
    bool dense;                 /* there are no holes in it */
};

static struct p3s_map views;            /* by the file's handle; needs p3s_lock */
static const struct view whole = {0, 1, true};

static void keep(uint64_t handle, const struct view *now)
{
    struct view *v = malloc(sizeof *v);
    if (!v)
        return;
    *v = *now;
    p3s_hold();
    free(p3s_map_put(&views, handle, v));
    p3s_let_go();
}

/* Hints that decide how a collective call goes to the file system: lines name=value. */
static void hints(MPI_File file, char *into, size_t room)
{
#ifdef P3S_HAVE_Info_get
    static const char *const wanted[] = {"romio_cb_write", "romio_cb_read", "collective_buffering",
                                         "cb_nodes", "cb_buffer_size", "romio_ds_write",
                                         "striping_factor", "striping_unit"};
    MPI_Info info;
    char value[64];
    size_t used = 0;
    if (PMPI_File_get_info(file, &info) != MPI_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int there = 0;
        if (PMPI_Info_get(info, (char *)wanted[i], sizeof value - 1, value, &there) ==
                MPI_SUCCESS && there && used < room)
            used += (size_t)snprintf(into + used, room - used, "%s=%s\n", wanted[i], value);
    }
    PMPI_Info_free(&info);
#endif
}

void p3s_file_opened(struct p3s_here *h, MPI_Comm comm, const char *name, int mode, MPI_File file)
{
    char text[768] = "";
    uint64_t keys[2];
    p3s_opened(h, comm, P3S_FILE, P3S_HANDLE(file));
    p3s_file_keys(name, keys);
    hints(file, text, sizeof text);
    int window = p3s_opened_number(P3S_FILE, P3S_HANDLE(file));
    p3s_hold();
    p3s_file_define(window, (uint32_t)mode, keys, text);
    p3s_let_go();
    keep(P3S_HANDLE(file), &whole);
}

void p3s_file_view(struct p3s_here *h, MPI_File file, int64_t start, MPI_Datatype element,
                   MPI_Datatype type)
{
    MPI_Aint low = 0, extent = 0;
    p3s_on(h, P3S_FILE, P3S_HANDLE(file), P3S_NO_RANK, 0, p3s_mpi.type_null);
    struct view v = {start, p3s_type_bytes(element), false};
    v.element = v.element > 0 ? v.element : 1;
    if (PMPI_Type_get_extent(type, &low, &extent) == MPI_SUCCESS)
        v.dense = low == 0 && extent == p3s_type_bytes(type);
    keep(P3S_HANDLE(file), &v);
}

void p3s_file_closed(uint64_t handle)
{
    p3s_hold();
    struct view *v = p3s_map_take(&views, handle);
    p3s_let_go();
    free(v);
}

/* Byte of the file where element number at of the view begins. */
static int64_t byte_of(MPI_File file, const struct view *v, int64_t at)
{
    MPI_Offset byte = 0;
    if (v->dense)
        return v->start + at * v->element;
    return PMPI_File_get_byte_offset(file, at, &byte) == MPI_SUCCESS ? byte : -1;
}

void p3s_file_moved(struct p3s_here *h, MPI_File file, int how, int64_t offset, int64_t count,
                    MPI_Datatype type)
{
    p3s_on(h, P3S_FILE, P3S_HANDLE(file), P3S_NO_RANK, count, type);
    uint64_t event = p3s_self.last_event;
    int64_t bytes = count * p3s_type_bytes(type);
    if (how == P3S_SHARED || event == P3S_NO_EVENT || bytes <= 0)
        return;
    p3s_hold();
    const struct view *found = p3s_map_get(&views, P3S_HANDLE(file));
    struct view v = found ? *found : whole;
    p3s_let_go();
    int64_t elements = bytes / v.element;
    MPI_Offset now = offset;
    if (how == P3S_OWN) {       /* the call has moved it on */
        if (PMPI_File_get_position(file, &now) != MPI_SUCCESS || now < elements)
            return;
        now -= elements;
    }
    int64_t from = byte_of(file, &v, now), last = byte_of(file, &v, now + elements - 1);
    if (from < 0 || last < from)
        return;
    p3s_hold();
    p3s_put_access(event, from, v.dense ? bytes : last - from + v.element);
    p3s_let_go();
}
