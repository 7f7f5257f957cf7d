/* Phases that are known from earlier runs: events of one that was seen often enough are only
 * counted. */
#ifndef P3S_PHASE_H
#define P3S_PHASE_H

#include "p3s_tracer.h"

extern bool p3s_phases;         /* a plan was read: the file has phases */

/* Read the plan (p3s/capture/recording_plan.py) and begin the chunk with a row per phase. */
void p3s_phase_open(const char *plan);
void p3s_phase_seal(void);
/* The following need p3s_lock. */
void p3s_phase_site(uint32_t site, uint64_t key);
/* Takes part in the event's phase; false if the event is only to be counted. */
bool p3s_phase_wants(uint32_t number, const struct p3s_call *call, int64_t elapsed_ns,
                     int64_t work);

#endif
