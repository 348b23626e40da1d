/*
** ops/attention/attention_rows.c: the two instances of ops/attention/attention_rows.h, and the
** exponential of numbers that are not above 0, which skips what is smaller
** than any result can show instead of making denormal numbers of it.
*/
#include <math.h>
#include "ops/attention/attention.h"
#include "cpu/rows.h"

AMP_INLINE float att_exp_f32(float x)
{
  float c = x < -87.f ? -87.f : x;
  float e = amp__exp_hl(c, 0.f);
  return x < -87.f ? 0.f : e;
}
AMP_INLINE double att_exp_f64(double x) { return exp(x); }

enum { FEW = 4 }; /* rows for which keys are not packed */
enum { att_type_f32 = AMP_FLOAT32, att_type_f64 = AMP_FLOAT64 };
#define att_load_f32 amp__load_f32
#define att_load_f64 amp__load_f64
#define att_store_f32 amp__store_f32
#define att_store_f64 amp__store_f64
#define att_row_max_f32 amp__row_max_f32
#define att_row_max_f64 amp__row_max_f64
#define att_log_f32 logf
#define att_log_f64 log

#define real float
#define NAME(x) att_##x##_f32
#define amp__attention_forward_ amp__attention_forward_f32
#define amp__attention_forward_size_ amp__attention_forward_size_f32
#define amp__attention_backward_ amp__attention_backward_f32
#define amp__attention_backward_size_ amp__attention_backward_size_f32
#include "ops/attention/attention_rows.h"

#define real double
#define NAME(x) att_##x##_f64
#define amp__attention_forward_ amp__attention_forward_f64
#define amp__attention_forward_size_ amp__attention_forward_size_f64
#define amp__attention_backward_ amp__attention_backward_f64
#define amp__attention_backward_size_ amp__attention_backward_size_f64
#include "ops/attention/attention_rows.h"
