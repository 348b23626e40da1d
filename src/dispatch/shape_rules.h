/*
** dispatch/shape_rules.h: what shape rules share among their files. A rule checks ranks,
** sizes, dtypes and attributes of a call, makes its attributes count from 0, and
** says what the results will be (meta and nout of the call). It reads no elements; index
** values and labels are checked by kernels.
*/
#ifndef AMP_DISPATCH_SHAPE_RULES_H
#define AMP_DISPATCH_SHAPE_RULES_H
#include "dispatch/dispatch.h"

#define LL(x) ((long long)(x))
#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

static inline bool is_given(const amp_slot *s) { return s->i != AMP_NONE; }

int amp__row_dim(amp_slot *s, int ndim,
                 const char *what); /* as amp__norm_dim; a scalar is a row of one element here, along 1 or -1 */
int amp__default_float(void);       /* the state's default dtype if a float, else float32 */
int amp__equal_dtypes(const amp_call *call, int count); /* of the first `count` inputs that are there */
int amp__dtype_attr(const amp_slot *s, int absent, int *dtype);
int amp__shape_attr(amp_slot *s, const char *what, int *ndim, int64_t *size); /* an I attribute of sizes */
int amp__want_index(const amp_tensor *tensor, int arg, const char *what);     /* an integer dtype */
int amp__value_fits(double v, int dtype);                                     /* error if v has no place in dtype */
/* meta[i]: rows of 16-bit values that begin at 16 bytes, where a GPU would read them one by one; others stay
** without gaps */
void amp__aligned_rows(amp_call *call, int i);
int amp__operand_dtype(const amp_call *call, int first, int count,
                       int *dtype); /* the common dtype of `count` inputs from first on, which numbers fit */
int amp__pointwise(amp_call *call,
                   int dtype); /* meta[0]: all inputs broadcast, strides of those that have its shape kept */
void amp__like(amp_call *call, int i, const amp_tensor *tensor,
               int dtype);                         /* meta[i]: the tensor's shape and, if dense, strides */
bool amp__channels_last(const amp_tensor *tensor); /* 4-d, that order, and not C order too */
void amp__as_channels_last(amp_meta *meta);
void amp__follow_channels(amp_call *call, int i, const amp_tensor *tensor,
                          int spatial); /* meta[i]: channels innermost, if tensor has them so (ops/pool/pool_shape.c) */
int amp__want_shape(const amp_tensor *tensor, const char *what, int ndim, const int64_t *size); /* exactly this shape */
int amp__ask(amp_tensor *tensor, int op, double *v); /* of a tensor on a device: op's (its first attribute a list or
                                                   dimension: absent) one value, waited for */
void amp__want_half_copy(
    amp_call *call); /* a region's next cast of out[0] will be to 16 bits: the kernel may leave that as well */
double amp__number_of(const amp_tensor *tensor); /* of a wrapped number */
static inline int amp__acc_dtype(int dtype) { return dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }

#endif
