/*
** library/functions.h: the functions of every row, declared by its name: a missing one is a link error.
*/
#ifndef AMP_LIBRARY_FUNCTIONS_H
#define AMP_LIBRARY_FUNCTIONS_H
#include "core.h"
#ifdef __cplusplus
extern "C" {
#endif

amp_tensor *amp__rnn_beside(amp_node *node, const amp_tensor *first,
                            const amp_tensor *g); /* ops/rnn/rnn_derivative.c */
void amp__functions_install(void); /* puts the functions of rows into amp__ops, and the CPU's into its table */

#define AMP_FN_K(name)                         \
  int amp__cpu_##name(amp_call *c) AMP_SLOTFN; \
  int amp__bwd_##name(amp_bwd *b) AMP_SLOTFN;
#define AMP_FN_N(name) int amp__cpu_##name(amp_call *c) AMP_SLOTFN;
#define AMP_FN_V(name)                          \
  int amp__view_##name(amp_call *c) AMP_SLOTFN; \
  int amp__bwd_##name(amp_bwd *b) AMP_SLOTFN;
#define AMP_FN_C(name) int amp__comp_##name(amp_call *c) AMP_SLOTFN;
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) \
  AMP_FN_##kind(name) int amp__infer_##infer(amp_call *c) AMP_SLOTFN;
#include "amp_ops.def"
#undef AMP_OP

#ifdef __cplusplus
}
#endif
#endif
