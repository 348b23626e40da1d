/*
** core.h: all rooms of the core at once, for ops and devices.
*/
#ifndef AMP_CORE_H
#define AMP_CORE_H
#include "capture/capture.h"
#include "observe/observe.h"
#endif
