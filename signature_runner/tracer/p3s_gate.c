/* What decides whether a call is recorded: the gate, and MPI_Pcontrol. */
#include "p3s_inside.h"

#include <signal.h>

bool p3s_on_alternate_stack(void)
{
    stack_t now;
    return !sigaltstack(NULL, &now) && now.ss_flags & SS_ONSTACK;
}

bool p3s_gate(void *ra, void *fa)
{
    if (!p3s_active || p3s_nested(fa))
        return false;
    p3s_go_in(ra, fa);
    if (__builtin_expect(p3s_stack(ra, fa), 1))
        return true;
    p3s_self.depth = 0;
    __atomic_fetch_add(&p3s_header->in_handlers, 1, __ATOMIC_RELAXED);
    return false;
}

/* Level 0 switches recording off, any other on again; what tables need is kept up meanwhile. */
void p3s_pcontrol(int level)
{
    struct p3s_thread *t = &p3s_self;
    if (!p3s_active)
        return;
    if (p3s_io_pending)
        p3s_io_flush();
    bool was = p3s_header->paused;
    p3s_header->paused = level == 0;
    if (level == 0)
        p3s_header->flags |= P3S_FLAG_PAUSED;
    if (was && level != 0) {
        /* The work meanwhile belongs to nothing that is recorded. */
        t->carried_work = 0;
        for (int i = 0; i < p3s_counters; i++)
            t->carried_counter[i] = 0;
        if (p3s_counters)
            p3s_counters_read(t, t->counter_at_return);
        t->wall_at_return = 0;
        t->work_at_return = p3s_work_now();
        p3s_team_forget();
    }
}
