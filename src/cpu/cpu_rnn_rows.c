/*
** cpu_rnn_rows.c: the loops of a recurrent layer (cpu_rnn_rows.h) in float and
** in double. The float functions are cpu_math.h's, which become vector code.
*/
#include "cpu_rnn.h"

/* What both directions need beside the products, for n batch rows: see the first lines of the two loops. */
size_t amp__rnn_room(const rnn *r, int64_t n) {
  return (size_t)(2 * r->g + 3 * r->wide + n * (r->g + r->wide + r->h)) + 64;
}

AMP_INLINE double sigmoid(double x) {
  double z = exp(-fabs(x));
  return (x < 0 ? z : 1) / (1 + z);
}

#define RT float
#define RN(x) x##_f32
#define tanh_f32 amp__tanhf
#define sigmoid_f32 amp__sigmoidf
#define cls_f32 AMP_C_F32
#include "cpu_rnn_rows.h"

#define RT double
#define RN(x) x##_f64
#define tanh_f64 tanh
#define sigmoid_f64 sigmoid
#define cls_f64 AMP_C_F64
#include "cpu_rnn_rows.h"
