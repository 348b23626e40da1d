/*
** base/table.h: the op table as data: what amp_ops.def says of a row, and the functions
** that stand for it, which library/functions.c puts there.
*/
#ifndef AMP_BASE_TABLE_H
#define AMP_BASE_TABLE_H
#include <stddef.h>
#include "base/hooks.h"
/* Attributes lie in a call's slots; a struct of a row's attributes is laid over them: args_NAME, made from
** amp_ops.def. */
#define AMP_OVER_SLOTS __attribute__((may_alias))
#include "op_args.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef int (*amp_infer_fn)(amp_call *c);
typedef int (*amp_kernel_fn)(amp_call *c);
typedef int (*amp_bwd_fn)(amp_bwd *b);

typedef struct amp_op_desc {
  amp_op_info info;
  uint32_t save;              /* bits: I0.. low byte, O0.. next */
  uint32_t traits;            /* AMP_R_... of the row, see amp_ops.def; ask with amp__row_is */
  uint8_t nrequired;          /* tensors that must be there */
  uint8_t required;           /* bit i: argument i must be there */
  uint8_t number_ok;          /* bit i: may be a number */
  AMP_ATOMIC(uint8_t) policy; /* in force */
  int8_t dtype_slot;          /* slot of an attribute `dtype:t?`, -1: none */
  int8_t training_slot;       /* slot of an attribute `training`, -1: none */
  uint8_t statistics;         /* bit i: training changes argument i (AMP_R_STATISTICS) */
  uint8_t nrule;
  struct {
    uint8_t slot, type, optional, most;
  } rule[8]; /* attributes of which few values have a meaning */
  amp_infer_fn infer;
  amp_kernel_fn front; /* view maker or composite; NULL for K and N */
  amp_bwd_fn bwd;      /* NULL: not differentiable */
  amp_slot defaults[AMP_MAX_SLOT];
} amp_op_desc;
extern amp_op_desc amp__ops[AMP_OP_COUNT];
static inline bool amp__row_is(const amp_op_desc *row, uint64_t trait) { return (row->traits & trait >> 32) != 0; }
/* The attributes of a call (amp_call *, or amp_bwd *) of the row NAME. Booleans and choices are integers. */
#define AMP_ARGS(call, name) ((const args_##name *)(call)->attrs)
/* Whether an optional attribute is given */
#define AMP_GIVEN(attribute) (AMP_SLOT(attribute)->i != AMP_NONE)
/* The slots of an attribute, for functions that read or complete it in place: a list has its count, then its values. */
#define AMP_SLOT(attribute) amp__slot(&(attribute))
static inline amp_slot *amp__slot(const void *attribute) { return (amp_slot *)attribute; }
/* Attributes of the row NAME that stand in another row's struct, from its attribute FIRST on: a gradient's row has
** a shape, and then what the row itself has. */
#define AMP_ARGS_FROM(args, first, name) \
  ((const args_##name *)(const void *)((const char *)(args) + offsetof(__typeof__(*(args)), first)))
int amp__policy_of(int op, const amp_slot *attrs); /* class in force for a call with these attributes (base/table.c) */
int amp__check_attributes(const amp_op_desc *row,
                          const amp_slot *attrs); /* a caller's: counts, dtypes, words (base/table.c) */
/* An attribute of a row, as its schema says. */
typedef struct amp_attribute {
  const char *name, *colon; /* in the schema; the type's letter and what belongs to it stand behind the colon */
  int length, slot, count;  /* of the name; first slot and how many */
  char type;
  bool optional, defaulted;
} amp_attribute;
bool amp__next_attribute(const amp_op_desc *d, amp_attribute *a); /* the one after a; a begins as zeros */
typedef struct amp_op_functions {
  amp_infer_fn infer;
  amp_kernel_fn front;
  amp_bwd_fn bwd;
} amp_op_functions;
void amp__table_install(
    const amp_op_functions *functions); /* of each row (library/functions.c); once, when the library is loaded */

#ifdef __cplusplus
}
#endif
#endif
