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

/* C++: tables of virtual functions, and atomic operations, which these hooks replace. All ranks
 * run in one thread. */
void __tsan_vptr_read(void **at) { (void)at; add(ACCESS_PS); }
void __tsan_vptr_update(void **at, void *value) { (void)at, (void)value; add(ACCESS_PS); }
void __tsan_atomic_thread_fence(int order) { (void)order; }
void __tsan_atomic_signal_fence(int order) { (void)order; }

#define FETCH(bits, name, result)                                                                \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at,                     \
                                                uint##bits##_t value, int order)                 \
    {                                                                                            \
        uint##bits##_t old = *at;                                                                \
        (void)order;                                                                             \
        add(ACCESS_PS);                                                                          \
        *at = result;                                                                            \
        return old;                                                                              \
    }
#define EXCHANGE(bits, name)                                                                     \
    int __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t *expected,      \
                                     uint##bits##_t value, int order, int failed)                \
    {                                                                                            \
        uint##bits##_t old = *at;                                                                \
        (void)order, (void)failed;                                                               \
        add(ACCESS_PS);                                                                          \
        if (old == *expected) {                                                                  \
            *at = value;                                                                         \
            return 1;                                                                            \
        }                                                                                        \
        *expected = old;                                                                         \
        return 0;                                                                                \
    }
#define ATOMIC(bits)                                                                             \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)      \
    {                                                                                            \
        (void)order;                                                                             \
        add(ACCESS_PS);                                                                          \
        return *at;                                                                              \
    }                                                                                            \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value,          \
                                     int order)                                                  \
    {                                                                                            \
        (void)order;                                                                             \
        add(ACCESS_PS);                                                                          \
        *at = value;                                                                             \
    }                                                                                            \
    FETCH(bits, exchange, value)                                                                 \
    FETCH(bits, fetch_add, (uint##bits##_t)(old + value))                                        \
    FETCH(bits, fetch_sub, (uint##bits##_t)(old - value))                                        \
    FETCH(bits, fetch_and, (uint##bits##_t)(old & value))                                        \
    FETCH(bits, fetch_or, (uint##bits##_t)(old | value))                                         \
    FETCH(bits, fetch_xor, (uint##bits##_t)(old ^ value))                                        \
    FETCH(bits, fetch_nand, (uint##bits##_t)~(old & value))                                      \
    EXCHANGE(bits, compare_exchange_strong)                                                      \
    EXCHANGE(bits, compare_exchange_weak)
ATOMIC(8) ATOMIC(16) ATOMIC(32) ATOMIC(64)
