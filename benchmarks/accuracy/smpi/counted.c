/* What the program's statements cost on the simulated hosts: linked into the program.
 *
 * The program is compiled with -fsanitize-coverage=trace-pc and -fsanitize=thread, whose hooks are
 * here: the compiler calls them once per basic block and once per access to memory that is no
 * register. BLOCK_PS, ACCESS_PS: what each costs, in picoseconds.
 */
#include <stddef.h>
#include <stdint.h>

uint64_t *accuracy_cost(void);          /* clock.c */

static uint64_t *cost;                  /* of this rank: each has its own copy of the program */

static inline void add(uint64_t picoseconds)
{
    if (__builtin_expect(!cost, 0))
        cost = accuracy_cost();
    *cost += picoseconds;
}

void __sanitizer_cov_trace_pc(void) { add(BLOCK_PS); }

#define ACCESS(name) void __tsan_##name(void *at) { (void)at; add(ACCESS_PS); }
#define BOTH(what)                                                                               \
    ACCESS(read##what) ACCESS(write##what) ACCESS(volatile_read##what)                           \
    ACCESS(volatile_write##what)
BOTH(1) BOTH(2) BOTH(4) BOTH(8) BOTH(16)
#define UNALIGNED(what)                                                                          \
    ACCESS(unaligned_read##what) ACCESS(unaligned_write##what)                                   \
    ACCESS(unaligned_volatile_read##what) ACCESS(unaligned_volatile_write##what)
UNALIGNED(2) UNALIGNED(4) UNALIGNED(8) UNALIGNED(16)

#define RANGE(name)                                                                              \
    void __tsan_##name(void *at, size_t bytes) { (void)at; add((bytes + 7) / 8 * ACCESS_PS); }
RANGE(read_range) RANGE(write_range)

void __tsan_init(void) {}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
