/*
** ops/rnn/rnn.h: one recurrent layer in one direction, shared by the files of
** this room. Batch elements are independent of each other, so threads share
** out the batch and never wait for one another within a sequence.
**
** Step t has m(t) rows from row first(t) on; all steps have N rows, or as many
** as a packed sequence's batch sizes say, which never grow with t. A row of the
** reserve (what backward needs, in the computing type) is
**
**   tanh, relu  h        LSTM  i f g o c        GRU  r z n (W_hn h + b_hn)
**
** and behind an LSTM's rows the initial c follows. Operands of products are in
** the computing type, or bfloat16 where the processor multiplies that; the
** results of a step are the operand of the next one, rounded to their dtype.
*/
#ifndef AMP_CPU_RNN_H
#define AMP_CPU_RNN_H
#include "cpu/gemm.h"
#include "cpu/kernel_help.h"

/* B of many products A B, packed: element (p, j) lay at src[p * ks + j * ns] when it was packed */
typedef struct rnn_weight {
  int64_t rows, cols;
  int op, type;
  void *packed;
} rnn_weight;

typedef struct rnn_layer {
  int mode;                   /* RNN_LAYER_MODE_... */
  int dtype, type, operand;   /* dtypes of results, of computing, of operands */
  bool reverse, round;        /* round: results to dtype, which is neither type nor operand */
  int64_t steps, batch, rows; /* of all steps */
  int64_t input_size, hidden, state_size;
  int64_t gates, reserve_row; /* values of a row: of all gates, of the reserve */
  int64_t *first;             /* [steps + 1], or NULL: all steps have `batch` rows */
  int64_t wide;               /* the larger of hidden and state_size */
  rnn_weight input_weight, state_weight;
  const void *input, *first_h;          /* operands: rows x input_size, batch x state_size */
  const void *first_c, *bias, *bias_hn; /* batch x hidden, gates, hidden */
  void *result, *last_h, *last_c;       /* operands: rows x hidden, batch x hidden; computing type: batch x hidden */
  void *reserve;                        /* computing type: rows x reserve_row */
  /* backward */
  const void *grad, *grad_h, *grad_c;  /* computing type or NULL */
  void *dgates, *dgates_state, *hprev; /* operands: rows x gates, the same (GRU), rows x state_size */
  void *dfirst_h, *dfirst_c;           /* computing type */
  char *scratch;
  size_t each, gemm; /* bytes a thread, of it for products */
} rnn_layer;

static inline int64_t rnn_first(const rnn_layer *layer, int64_t step_at)
{
  return layer->first ? layer->first[step_at] : step_at * layer->batch;
}
static inline int64_t rnn_size(const rnn_layer *layer, int64_t step_at)
{
  return step_at < 0 || step_at >= layer->steps ? 0
         : layer->first                         ? layer->first[step_at + 1] - layer->first[step_at]
                                                : layer->batch;
}
static inline int64_t rnn_clip(int64_t rows, int64_t begin, int64_t end)
{
  return rows < begin ? 0 : rows > end ? end - begin : rows - begin;
}
static inline void *rnn_at(const void *p, int64_t i, int dtype)
{
  return (char *)(uintptr_t)p + i * amp__dtype_size[dtype];
}

/* Scratch of a thread besides that of products, in elements, and the loops over batch rows [begin, end). */
size_t amp__rnn_room(const rnn_layer *layer, int64_t n);
void amp__rnn_forward_f32(const rnn_layer *layer, int64_t begin, int64_t end, void *scratch);
void amp__rnn_forward_f64(const rnn_layer *layer, int64_t begin, int64_t end, void *scratch);
void amp__rnn_backward_f32(const rnn_layer *layer, int64_t begin, int64_t end, void *scratch);
void amp__rnn_backward_f64(const rnn_layer *layer, int64_t begin, int64_t end, void *scratch);

/* Products with a packed weight (ops/rnn/rnn_product.c). C is of the computing type. */
size_t amp__rnn_packed(const rnn_weight *weight);
void amp__rnn_pack(rnn_weight *weight, const void *src, int64_t ks, int64_t ns, void *dst);
size_t amp__rnn_gemm(const rnn_weight *weight, int64_t rows);
void amp__rnn_product(const rnn_weight *weight, int64_t rows, const void *a, int64_t ars, void *c, int64_t crs,
                      bool add, const void *bias, void *scratch);
bool amp__rnn_bf16(void); /* does the processor multiply bfloat16? */

#endif
