/*
** cpu/rows.c: the runs of cpu/rows.h. Sums keep four chains of vectors, which
** hide the adder's latency: side by side in the sums that read a run first, so
** that memory is read in order, else down the quarters of a run.
*/
#include "cpu/rows.h"

AMP_INLINE float exp_f32(float x) { return amp__expf(x); }
AMP_INLINE double exp_f64(double x) { return exp(x); }

#define real float
#define NAME(x) x##_f32
#include "cpu/rows_body.h"

#define real double
#define NAME(x) x##_f64
#include "cpu/rows_body.h"
