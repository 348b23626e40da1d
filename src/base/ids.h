/*
** base/ids.h: ids of what Lua keeps for the core, and of what is gone (base/ids.c).
*/
#ifndef AMP_BASE_IDS_H
#define AMP_BASE_IDS_H
#include "base/base.h"

int64_t amp__new_id(void);             /* of the state in progress; never made twice */
void amp__dead_open(amp_state *state); /* a list for ids of this state that are gone */
void amp__dead_close(amp_state *state);
void amp__dead_push(int64_t id); /* what has this id is gone. Any thread */

#endif
