/*
** dispatch/cell.h: single values in a device's memory ("cells").
*/
#ifndef AMP_DISPATCH_CELL_H
#define AMP_DISPATCH_CELL_H
#include "dispatch/dispatch.h"

amp_tensor *amp__cell(int dtype, int device, int index, double value); /* 0-d, float32 or float64 */
amp_tensor *amp__cell_copy(amp_tensor *cell, int device, int index);   /* its own memory, maybe elsewhere */
amp_tensor *amp__cell_zero(int device, int index);                     /* float32, 0; maybe part of a longer tensor */
int amp__cell_read(amp_tensor *cell, double *v);                       /* waits for a device; the caller counts it */

#endif
