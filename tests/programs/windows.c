/* One-sided communication and MPI-IO: bytes, target in world ranks, and the communicator of the
 * window or file, which the program may free before. */
#include "expect.h"
#include <unistd.h>

static MPI_Comm half;                   /* ranks in reverse order */
static int size, mine, next, next_world;

static void split(void)
{
    int color = me % 2;
    MPI_Comm_split(MPI_COMM_WORLD, color, -me, &half);
    comm_ev("MPI_Comm_split", p);
    MPI_Comm_size(half, &size);
    MPI_Comm_rank(half, &mine);
    next = (mine + 1) % size;
    next_world = color + 2 * (size - 1 - next);
}

static void to(const char *op, long bytes, int elem)
{
    ev(op, next_world, bytes, elem, -1, -1, size);
}

static void wait_for(MPI_Request *r)
{
    MPI_Wait(r, MPI_STATUS_IGNORE);
    done_ev("MPI_Wait", 1);
}

static void passive(MPI_Win win)
{
    double x[4] = {1, 2, 3, 4}, y[4];
    MPI_Request r;
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win), to("MPI_Win_lock", 0, 1);
    MPI_Put(x, 2, pair, next, 0, 4, MPI_DOUBLE, win), to("MPI_Put", 32, 8);
    MPI_Put(x, 0, MPI_DOUBLE, next, 0, 0, MPI_DOUBLE, win), to("MPI_Put", 0, 8);
    MPI_Put(x, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, 1, MPI_DOUBLE, win);
    ev("MPI_Put", -3, 8, 8, -1, -1, size);
    MPI_Win_flush(next, win), to("MPI_Win_flush", 0, 1);
    MPI_Get(y, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, win), to("MPI_Get", 24, 8);
    MPI_Win_flush_local(next, win), to("MPI_Win_flush_local", 0, 1);
    MPI_Accumulate(x, 1, MPI_DOUBLE, next, 1, 1, MPI_DOUBLE, MPI_SUM, win);
    to("MPI_Accumulate", 8, 8);
    MPI_Win_flush(next, win), to("MPI_Win_flush", 0, 1);
    MPI_Get_accumulate(x, 2, MPI_DOUBLE, y, 2, MPI_DOUBLE, next, 0, 2, MPI_DOUBLE, MPI_SUM, win);
    to("MPI_Get_accumulate", 16, 8);
    /* with MPI_NO_OP nobody looks at the origin's part */
    MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, y, 2, MPI_DOUBLE, next, 0, 2, MPI_DOUBLE, MPI_NO_OP,
                       win);
    to("MPI_Get_accumulate", 16, 8);
    int one = 1, was, other = 7;
    MPI_Win_flush(next, win), to("MPI_Win_flush", 0, 1);
    MPI_Fetch_and_op(&one, &was, MPI_INT, next, 6, MPI_SUM, win), to("MPI_Fetch_and_op", 4, 4);
    MPI_Win_flush(next, win), to("MPI_Win_flush", 0, 1);
    MPI_Compare_and_swap(&one, &other, &was, MPI_INT, next, 7, win);
    to("MPI_Compare_and_swap", 4, 4);
    MPI_Win_unlock(next, win), to("MPI_Win_unlock", 0, 1);
    MPI_Win_lock_all(0, win), comm_ev("MPI_Win_lock_all", size);
    MPI_Rput(x, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, win, &r), to("MPI_Rput", 24, 8);
    wait_for(&r);
    MPI_Win_flush_all(win), comm_ev("MPI_Win_flush_all", size);
    MPI_Rget(y, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, win, &r), to("MPI_Rget", 8, 8);
    wait_for(&r);
    MPI_Raccumulate(x, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, MPI_SUM, win, &r);
    to("MPI_Raccumulate", 8, 8);
    wait_for(&r);
    MPI_Win_flush_local_all(win), comm_ev("MPI_Win_flush_local_all", size);
    MPI_Rget_accumulate(x, 1, MPI_DOUBLE, y, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, MPI_SUM, win,
                        &r);
    to("MPI_Rget_accumulate", 8, 8);
    wait_for(&r);
    MPI_Win_sync(win), comm_ev("MPI_Win_sync", size);
    MPI_Win_unlock_all(win), comm_ev("MPI_Win_unlock_all", size);
    MPI_Type_free(&pair);
}

static void active(MPI_Win win)
{
    MPI_Group all, after, before;
    int last = (mine + size - 1) % size, x = me;
    MPI_Comm_group(half, &all);
    MPI_Group_incl(all, 1, &next, &after);
    MPI_Group_incl(all, 1, &last, &before);
    MPI_Win_post(before, 0, win), comm_ev("MPI_Win_post", size);
    MPI_Win_start(after, 0, win), comm_ev("MPI_Win_start", size);
    MPI_Put(&x, 1, MPI_INT, next, 0, 1, MPI_INT, win), to("MPI_Put", 4, 4);
    MPI_Win_complete(win), comm_ev("MPI_Win_complete", size);
    MPI_Win_wait(win), comm_ev("MPI_Win_wait", size);
    MPI_Win_post(before, 0, win), comm_ev("MPI_Win_post", size);
    MPI_Win_start(after, 0, win), comm_ev("MPI_Win_start", size);
    MPI_Win_complete(win), comm_ev("MPI_Win_complete", size);
    int flag = 0;
    for (MPI_Win_test(win, &flag); !flag; MPI_Win_test(win, &flag))
        failed_polls++;
    comm_ev("MPI_Win_test", size);
    MPI_Group_free(&all);
    MPI_Group_free(&after);
    MPI_Group_free(&before);
}

static void windows(void)
{
    static double memory[64];
    void *base;
    MPI_Win win, kept;
    MPI_Comm copy;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, half, &win);
    comm_ev("MPI_Win_create", size);
    MPI_Win_fence(0, win), comm_ev("MPI_Win_fence", size);
    MPI_Put(memory, 1, MPI_DOUBLE, next, 9, 1, MPI_DOUBLE, win), to("MPI_Put", 8, 8);
    MPI_Win_fence(0, win), comm_ev("MPI_Win_fence", size);
    active(win);
    MPI_Win_free(&win);
    comm_ev("MPI_Win_free", size);
    check(win == MPI_WIN_NULL, "Win_free");
    MPI_Win_allocate(sizeof memory, 8, MPI_INFO_NULL, half, &base, &win);
    comm_ev("MPI_Win_allocate", size);
    memset(base, 0, sizeof memory);
    MPI_Barrier(half), comm_ev("MPI_Barrier", size);
    passive(win);
    MPI_Barrier(half), comm_ev("MPI_Barrier", size);
    MPI_Win_free(&win);
    comm_ev("MPI_Win_free", size);
    MPI_Comm_dup(half, &copy), comm_ev("MPI_Comm_dup", size);
    MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, copy, &base, &kept);
    comm_ev("MPI_Win_allocate_shared", size);
    MPI_Comm_free(&copy), comm_ev("MPI_Comm_free", size);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    comm_ev("MPI_Win_create_dynamic", p);
    MPI_Win_fence(0, kept), comm_ev("MPI_Win_fence", size); /* the freed communicator's members */
    MPI_Win_free(&win);
    comm_ev("MPI_Win_free", p);
    MPI_Win_free(&kept);
    comm_ev("MPI_Win_free", size);
}

static void on_file(const char *op, long bytes, int elem)
{
    ev(op, -1, bytes, elem, -1, -1, size);
}

static void files(void)
{
    char name[64], other[64];
    double x[8] = {0}, y[8];
    int color = me % 2, got = 0;
    MPI_File f, again;
    MPI_Status s;
    MPI_Request r;
    snprintf(name, sizeof name, "data-%d.bin", color);
    snprintf(other, sizeof other, "other-%d.bin", color);
    MPI_File_open(half, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    comm_ev("MPI_File_open", size);
    MPI_Offset at = mine * (MPI_Offset)64;
    MPI_File_set_size(f, 0), on_file("MPI_File_set_size", 0, 1);
    MPI_File_preallocate(f, 64 * size), on_file("MPI_File_preallocate", 0, 1);
    x[0] = me + 0.5;
    MPI_File_write_at(f, at, x, 4, MPI_DOUBLE, &s), on_file("MPI_File_write_at", 32, 8);
    MPI_File_write_at_all(f, at, x, 8, MPI_DOUBLE, &s), on_file("MPI_File_write_at_all", 64, 8);
    MPI_File_sync(f), on_file("MPI_File_sync", 0, 1);
    MPI_File_read_at(f, at, y, 8, MPI_DOUBLE, &s), on_file("MPI_File_read_at", 64, 8);
    MPI_Get_count(&s, MPI_DOUBLE, &got);
    check(y[0] == me + 0.5 && got == 8, "file");
    MPI_File_read_at_all(f, at, y, 0, MPI_DOUBLE, &s), on_file("MPI_File_read_at_all", 0, 8);
    MPI_File_iwrite_at(f, at, x, 2, MPI_INT, &r), on_file("MPI_File_iwrite_at", 8, 4);
    wait_for(&r);
    MPI_File_iread_at(f, at, y, 2, MPI_INT, &r), on_file("MPI_File_iread_at", 8, 4);
    wait_for(&r);
    MPI_File_iwrite_at_all(f, at, x, 1, MPI_INT, &r), on_file("MPI_File_iwrite_at_all", 4, 4);
    wait_for(&r);
    MPI_File_iread_at_all(f, at, y, 1, MPI_INT, &r), on_file("MPI_File_iread_at_all", 4, 4);
    wait_for(&r);
    MPI_File_set_view(f, at, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    on_file("MPI_File_set_view", 0, 1);
    MPI_File_write(f, x, 1, MPI_DOUBLE, &s), on_file("MPI_File_write", 8, 8);
    MPI_File_write_all(f, x, 2, MPI_DOUBLE, &s), on_file("MPI_File_write_all", 16, 8);
    MPI_File_iwrite(f, x, 1, MPI_DOUBLE, &r), on_file("MPI_File_iwrite", 8, 8);
    wait_for(&r);
    MPI_File_seek(f, 0, MPI_SEEK_SET);
    MPI_File_read(f, y, 1, MPI_DOUBLE, &s), on_file("MPI_File_read", 8, 8);
    MPI_File_read_all(f, y, 1, MPI_DOUBLE, &s), on_file("MPI_File_read_all", 8, 8);
    MPI_File_iread(f, y, 1, MPI_DOUBLE, &r), on_file("MPI_File_iread", 8, 8);
    wait_for(&r);
    MPI_File_write_at_all_begin(f, 0, x, 3, MPI_DOUBLE);
    on_file("MPI_File_write_at_all_begin", 24, 8);
    MPI_File_write_at_all_end(f, x, &s), on_file("MPI_File_write_at_all_end", 0, 1);
    MPI_File_read_all_begin(f, y, 1, MPI_DOUBLE), on_file("MPI_File_read_all_begin", 8, 8);
    MPI_File_read_all_end(f, y, &s), on_file("MPI_File_read_all_end", 0, 1);
    MPI_File_open(MPI_COMM_SELF, me == color ? other : "self.bin",
                  MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &again);
    ev("MPI_File_open", -1, 0, 1, -1, -1, 1);
    MPI_File_close(&again);
    ev("MPI_File_close", -1, 0, 1, -1, -1, 1);
    MPI_File_close(&f);
    comm_ev("MPI_File_close", size);
    check(f == MPI_FILE_NULL, "File_close");
    if (me == color) {
        MPI_File_delete(other, MPI_INFO_NULL);
        ev("MPI_File_delete", -1, 0, 1, -1, -1, -1);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    expect_open();
    ev("MPI_Init", -1, 0, 1, -1, -1, p);
    split();
    windows();
    files();
    MPI_Comm_free(&half), comm_ev("MPI_Comm_free", size);
    expect_close();
    MPI_Finalize();
    return 0;
}
