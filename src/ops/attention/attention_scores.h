/*
** ops/attention/attention_scores.h: what the composites and the derivative of attention share.
** Both work on recorded ops (dispatch/op_builder.h); the fused kernels are in ops/attention/attention.c.
*/
#ifndef AMP_OPS_ATTENTION_SCORES_H
#define AMP_OPS_ATTENTION_SCORES_H
#include "autograd/derivative.h"

/* softmax(q k^T * scale + mask) over the last dimension; 0 in rows without a key that takes part. mask: NULL, bool
** (true: takes part), or a float to add. */
amp_tensor *amp__attention_weights(amp_tensor *q, amp_tensor *k, amp_tensor *mask, bool causal, double scale);
/* The L x S matrix of bools that is true on and under the diagonal */
amp_tensor *amp__causal_mask(const amp_tensor *like, int64_t length, int64_t keys);

#endif
