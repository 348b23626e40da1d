/*
** distributed/distributed.h: the core's side of several processes.
*/
#ifndef AMP_DISTRIBUTED_H
#define AMP_DISTRIBUTED_H

void amp__distributed_install(void); /* puts what engines call into amp__hooks */

#endif
