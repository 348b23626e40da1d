/*
** library/functions.c: the functions that stand for the rows of the op table, found by their names:
** a row without its shape rule, kernel or derivative is a link error.
*/
#include <string.h>
#include "library/functions.h"
#include "ops/linalg/factorisations.h"
#include "precision/scale.h"
#include "tensor/memory.h"

#define AMP_FRONT_K(name) NULL
#define AMP_FRONT_N(name) NULL
#define AMP_FRONT_V(name) amp__view_##name
#define AMP_FRONT_C(name) amp__comp_##name
#define AMP_BWD_K(name) amp__bwd_##name
#define AMP_BWD_N(name) NULL
#define AMP_BWD_V(name) amp__bwd_##name
#define AMP_BWD_C(name) NULL

static const amp_op_functions functions[AMP_OP_COUNT] = {
#define AMP_OP(kind_, name_, schema_, infer_, policy_, dtypes_, save_, flags_, doc_) \
  { amp__infer_##infer_, AMP_FRONT_##kind_(name_), AMP_BWD_##kind_(name_) },
#include "amp_ops.def"
#undef AMP_OP
};

#define AMP_KERNEL_K(name) [AMP_OP_##name] = amp__cpu_##name,
#define AMP_KERNEL_N(name) [AMP_OP_##name] = amp__cpu_##name,
#define AMP_KERNEL_V(name)
#define AMP_KERNEL_C(name)
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) AMP_KERNEL_##kind(name)
static const amp_kernel_fn plain[AMP_OP_COUNT] = {
#include "amp_ops.def"
};
#undef AMP_OP

static int set(const char *name, int value) { return strcmp(name, "fill") == 0 ? amp__memory_fill(value) : -1; }

void amp__functions_install(void)
{
  amp_device_ops *cpu = &amp__devices[AMP_CPU];
  amp__table_install(functions);
  amp__devices_install(plain, amp_table_hash());
  amp__hooks.gradient_beside = amp__rnn_beside;
  cpu->linalg = &amp__linalg_own;
  cpu->optim_step = amp__cpu_optim_step;
  cpu->check_scale = amp__cpu_check_scale;
  cpu->scale_update = amp__cpu_scale_update;
  cpu->set = set;
}
