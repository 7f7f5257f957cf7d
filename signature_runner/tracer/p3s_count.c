/* A plugin for qemu-user: keeps the running count of executed guest instructions where the guest
 * can read it without a system call. The file insn-<pid> in the directory given by dir= is mapped
 * here and, by the tracer, in the guest, which is the same process: u64 count, u64 magic, 4096
 * bytes in all.
 *
 * The prototypes are those of qemu's plugin API version 1 (qemu 6.0 and later); they are declared
 * here because few systems have the header. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define PAGE_BYTES 4096
#define READY UINT64_C(0x50335351454d5531)

typedef uint64_t plugin_id;
struct qemu_plugin_tb;

PUBLIC int qemu_plugin_version = 1;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *),
                                          int flags, void *);
void qemu_plugin_register_vcpu_syscall_cb(
    plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id,
                                              void (*)(plugin_id, unsigned, int64_t, int64_t));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

static volatile uint64_t *counter;
static char path[4096];

/* Only the first thread: helper threads of MPI libraries wake up when they like, and the count of
 * a loop would never be the same twice. */
static void executed(unsigned vcpu, void *instructions)
{
    if (vcpu == 0)
        *counter += (uintptr_t)instructions;
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0,
                                         (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

/* A program that a guest executes runs outside of qemu, under the same process id: it must not take
 * a count that stands still for its own. */
static void before_call(plugin_id id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b,
                        uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)vcpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number == SYS_execve || number == SYS_execveat)
        counter[1] = 0;
}

static void after_call(plugin_id id, unsigned vcpu, int64_t number, int64_t result)
{
    (void)id, (void)vcpu, (void)result;
    if (number == SYS_execve || number == SYS_execveat)
        counter[1] = READY; /* it failed: this program goes on */
}

/* A forked child goes on counting, in a page of its own: the file is its parent's. */
static void in_child(void)
{
    if (mmap((void *)counter, PAGE_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        _exit(127);
    path[0] = 0;
}

static void at_exit(plugin_id id, void *unused)
{
    (void)id;
    (void)unused;
    if (path[0])
        unlink(path);
}

PUBLIC int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    const char *directory = NULL;
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "dir=", 4))
            directory = argv[i] + 4;
    if (!directory || snprintf(path, sizeof path, "%s/insn-%ld", directory, (long)getpid()) >=
                          (int)sizeof path) {
        fprintf(stderr, "p3s: the instruction counter was not told where to write\n");
        return 1;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *page = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, PAGE_BYTES) == 0)
        page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (page == MAP_FAILED) {
        perror("p3s: the instruction counter's file");
        return 1;
    }
    counter = page;
    counter[1] = READY;
    pthread_atfork(NULL, NULL, in_child);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, before_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, after_call);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
