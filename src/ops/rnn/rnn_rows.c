/*
** ops/rnn/rnn_rows.c: the loops of a recurrent layer (ops/rnn/rnn_rows.h) in float and
** in double. The float functions are cpu/vector_math.h's, which become vector code.
*/
#include "ops/rnn/rnn.h"

/* What both directions need beside the products, for n batch rows: see the first lines of the two loops. */
size_t amp__rnn_room(const rnn_layer *layer, int64_t n)
{
  return (size_t)(2 * layer->gates + 3 * layer->wide + n * (layer->gates + layer->wide + layer->hidden)) + 64;
}

AMP_INLINE double sigmoid(double x)
{
  double z = exp(-fabs(x));
  return (x < 0 ? z : 1) / (1 + z);
}

#define real float
#define NAME(x) x##_f32
#define tanh_f32 amp__tanhf
#define sigmoid_f32 amp__sigmoidf
#define cls_f32 AMP_C_F32
#include "ops/rnn/rnn_rows.h"

#define real double
#define NAME(x) x##_f64
#define tanh_f64 tanh
#define sigmoid_f64 sigmoid
#define cls_f64 AMP_C_F64
#include "ops/rnn/rnn_rows.h"
