/*
** cpu_rnn.h: one recurrent layer in one direction, shared by the files of
** cpu_rnn*.c. Batch elements are independent of each other, so threads share
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
#include "cpu_gemm.h"
#include "cpu_nn.h"

enum { RNN_TANH, RNN_RELU, RNN_LSTM, RNN_GRU };

/* B of many products A B, packed: n columns, k rows, element (p, j) at w[p * ks + j * ns] when it was packed */
typedef struct rnn_weight {
  int64_t n, k;
  int op, type;
  void *packed;
} rnn_weight;

typedef struct rnn {
  int mode, dtype, type, op;       /* of results, computing, of operands */
  bool reverse, round;             /* round: results to dtype, which is neither type nor op */
  int64_t t, n, rows, in, h, r, g, rs; /* steps, batch, rows, input, hidden, recurrent input, gates * hidden, reserve's row */
  int64_t *first;                  /* [t + 1], or NULL: all steps have n rows */
  int64_t wide;                    /* max(h, r) */
  rnn_weight ih, hh;
  const void *x, *h0;              /* operands: rows x in, n x r */
  const void *c0, *bias, *bias_hn; /* n x h, g, h */
  void *y, *hn, *cn, *reserve;     /* operands: rows x h, n x h; computing type: n x h, rows x rs */
  /* backward */
  const void *gy, *ghn, *gcn;      /* computing type or NULL */
  void *dg, *dgh, *hprev;          /* operands: rows x g, the same (GRU), rows x r */
  void *dh0, *dc0;                 /* computing type */
  char *scratch;
  size_t each, gemm;               /* bytes a thread, of it for products */
} rnn;

static inline int64_t rnn_first(const rnn *r, int64_t t) { return r->first ? r->first[t] : t * r->n; }
static inline int64_t rnn_size(const rnn *r, int64_t t) {
  return t < 0 || t >= r->t ? 0 : r->first ? r->first[t + 1] - r->first[t] : r->n;
}
static inline int64_t rnn_clip(int64_t m, int64_t n0, int64_t n1) { return m < n0 ? 0 : m > n1 ? n1 - n0 : m - n0; }
static inline void *rnn_at(const void *p, int64_t i, int dtype) { return (char *)(uintptr_t)p + i * amp__dtype_size[dtype]; }

/* Scratch of a thread besides that of products, in elements, and the loops over batch rows n0 .. n1 - 1. */
size_t amp__rnn_room(const rnn *r, int64_t n);
void amp__rnn_forward_f32(const rnn *r, int64_t n0, int64_t n1, void *scratch);
void amp__rnn_forward_f64(const rnn *r, int64_t n0, int64_t n1, void *scratch);
void amp__rnn_backward_f32(const rnn *r, int64_t n0, int64_t n1, void *scratch);
void amp__rnn_backward_f64(const rnn *r, int64_t n0, int64_t n1, void *scratch);

/* Products with a packed weight (cpu_rnn_product.c). C is of the computing type. */
size_t amp__rnn_packed(const rnn_weight *w);
void amp__rnn_pack(rnn_weight *w, const void *src, int64_t ks, int64_t ns, void *dst);
size_t amp__rnn_gemm(const rnn_weight *w, int64_t m);
void amp__rnn_product(const rnn_weight *w, int64_t m, const void *a, int64_t ars, void *c, int64_t crs, bool add, const void *bias, void *scratch);
bool amp__rnn_bf16(void);          /* does the processor multiply bfloat16? */

#endif
