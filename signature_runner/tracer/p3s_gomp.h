/* The entries of libgomp that are interposed, without their GOMP_, and of LLVM's runtime, without
 * their __kmpc_: lists for macros. Of loops: S static, D dynamic or guided, R as the environment says;
 * C are sections, N no loop. */
#ifndef P3S_GOMP_H
#define P3S_GOMP_H

#define LOOPS(X)                                                                                  \
    X(loop_static_start, S) X(loop_dynamic_start, D) X(loop_guided_start, D)                      \
    X(loop_runtime_start, R) X(loop_nonmonotonic_dynamic_start, D)                                \
    X(loop_nonmonotonic_guided_start, D) X(loop_nonmonotonic_runtime_start, R)                    \
    X(loop_maybe_nonmonotonic_runtime_start, R) X(loop_ordered_static_start, S)                   \
    X(loop_ordered_dynamic_start, D) X(loop_ordered_guided_start, D)                              \
    X(loop_ordered_runtime_start, R) X(loop_doacross_static_start, S)                             \
    X(loop_doacross_dynamic_start, D) X(loop_doacross_guided_start, D)                            \
    X(loop_doacross_runtime_start, R) X(loop_ull_static_start, S) X(loop_ull_dynamic_start, D)    \
    X(loop_ull_guided_start, D) X(loop_ull_runtime_start, R)                                      \
    X(loop_ull_nonmonotonic_dynamic_start, D) X(loop_ull_nonmonotonic_guided_start, D)            \
    X(loop_ull_nonmonotonic_runtime_start, R) X(loop_ull_maybe_nonmonotonic_runtime_start, R)     \
    X(loop_ull_ordered_static_start, S) X(loop_ull_ordered_dynamic_start, D)                      \
    X(loop_ull_ordered_guided_start, D) X(loop_ull_ordered_runtime_start, R)                      \
    X(loop_ull_doacross_static_start, S) X(loop_ull_doacross_dynamic_start, D)                    \
    X(loop_ull_doacross_guided_start, D) X(loop_ull_doacross_runtime_start, R)
/* Schedule in the argument of this number. */
#define ANY_LOOPS(X)                                                                              \
    X(loop_start, 3) X(loop_ordered_start, 3) X(loop_doacross_start, 2) X(loop_ull_start, 4)      \
    X(loop_ull_ordered_start, 4) X(loop_ull_doacross_start, 2)
/* Region and loop in one. */
#define PARALLELS(X)                                                                              \
    X(parallel, N) X(parallel_loop_static, S) X(parallel_loop_dynamic, D)                         \
    X(parallel_loop_guided, D) X(parallel_loop_runtime, R)                                        \
    X(parallel_loop_nonmonotonic_dynamic, D) X(parallel_loop_nonmonotonic_guided, D)              \
    X(parallel_loop_nonmonotonic_runtime, R) X(parallel_loop_maybe_nonmonotonic_runtime, R)       \
    X(parallel_sections, C)
/* As gcc called them before 4.9: the program itself runs its part between start and end. */
#define STARTS(X)                                                                                 \
    X(parallel_start, N) X(parallel_loop_static_start, S) X(parallel_loop_dynamic_start, D)       \
    X(parallel_loop_guided_start, D) X(parallel_loop_runtime_start, R)                            \
    X(parallel_sections_start, C)
#define BARRIERS(X)                                                                               \
    X(barrier) X(barrier_cancel) X(loop_end) X(loop_end_cancel) X(sections_end)                   \
    X(sections_end_cancel)
#define WAITS(X)                                                                                  \
    X(taskwait) X(taskwait_depend) X(taskgroup_end) X(ordered_start) X(single_copy_end)
#define OTHERS(X)                                                                                 \
    X(parallel_reductions) X(parallel_end) X(single_start) X(single_copy_start) X(sections_start) \
    X(sections2_start) \
    X(critical_start) X(critical_name_start) X(task) X(taskloop) X(taskloop_ull)

/* What clang and Intel's compilers call: the loops, which their runtimes do not tell apart. */
#define STATIC_INITS(X)                                                                           \
    X(for_static_init_4) X(for_static_init_4u) X(for_static_init_8) X(for_static_init_8u)
#define DISPATCH_INITS(X)                                                                         \
    X(dispatch_init_4) X(dispatch_init_4u) X(dispatch_init_8) X(dispatch_init_8u)

#endif
