/*
** ops/reduce/reduce_arg.c: reductions that answer where, and those along a line:
** max and min with a dimension, argmax, argmin, cumsum, cumprod, equal.
**
** Indices count from 1; the first among equals wins, NaN wins over all. Along
** rows the extreme of a chunk is found by vectors (ops/reduce/reducers.c) and searched for
** only when it beats the best so far; along columns best and index are kept side by side.
*/
#include "ops/reduce/reduce.h"
#include "cpu/vector_math.h"

/* -- Extremes with an index --------------------------------------------------------- */

typedef struct arg_loops {
  int64_t (*row)(int64_t count, const void *x, void *best); /* index of a better one, or -1; best is updated */
  void (*cols)(int64_t count, const void *x, int64_t k, void *best, int64_t *index);
} arg_loops;

#define NAN_(v) ((v) != (v))
#define MORE(v, b) (((v) > (b)) | (NAN_(v) & !NAN_(b)))
#define LESS(v, b) (((v) < (b)) | (NAN_(v) & !NAN_(b)))
#define MOREI(v, b) ((v) > (b))
#define LESSI(v, b) ((v) < (b))

#define LOOPS more_f
#define NAME(part) more_f_##part
#define CLONES AMP_CLONES
#define real float
#define BETTER MORE
#define EXTREME amp__fold_max_f
#define WIDE double
#include "ops/reduce/reduce_arg_body.h"

#define LOOPS less_f
#define NAME(part) less_f_##part
#define CLONES AMP_CLONES
#define real float
#define BETTER LESS
#define EXTREME amp__fold_min_f
#define WIDE double
#include "ops/reduce/reduce_arg_body.h"

#define LOOPS more_d
#define NAME(part) more_d_##part
#define CLONES AMP_CLONES_WIDE
#define real double
#define BETTER MORE
#define EXTREME amp__fold_max_d
#define WIDE double
#include "ops/reduce/reduce_arg_body.h"

#define LOOPS less_d
#define NAME(part) less_d_##part
#define CLONES AMP_CLONES_WIDE
#define real double
#define BETTER LESS
#define EXTREME amp__fold_min_d
#define WIDE double
#include "ops/reduce/reduce_arg_body.h"

#define LOOPS more_i
#define NAME(part) more_i_##part
#define CLONES AMP_CLONES_WIDE
#define real int64_t
#define BETTER MOREI
#define EXTREME amp__fold_max_i
#define WIDE int64_t
#include "ops/reduce/reduce_arg_body.h"

#define LOOPS less_i
#define NAME(part) less_i_##part
#define CLONES AMP_CLONES_WIDE
#define real int64_t
#define BETTER LESSI
#define EXTREME amp__fold_min_i
#define WIDE int64_t
#include "ops/reduce/reduce_arg_body.h"

typedef struct {
  const amp_rplan *plan;
  const arg_loops *loops;
  int cls;
  amp_tensor *values;
} searching;

/* One dimension is reduced, so the reduced index is the answer. p->out is the index tensor (int64). */
static void search_block(const searching *searching, const amp_rblock *block, char *value_out)
{
  const amp_rplan *plan = searching->plan;
  char buf[AMP_CHUNK * 8] __attribute__((aligned(64))), best[AMP_CHUNK * 8] __attribute__((aligned(64)));
  int64_t index[AMP_CHUNK], count = plan->reduced;
  int column_stride = amp__class_size[searching->cls];
  bool direct = plan->dtype == amp__class_dtype[searching->cls];
  if (plan->columns) {
    amp__load(searching->cls, best, plan->dtype, block->from, plan->kept_in[0], block->count);
    for (int j = 0; j < block->count; j++) index[j] = 1;
    for (int64_t k = 1; k < count; k++) {
      const char *q = block->from + k * plan->reduced_in[0] * plan->item_size;
      if (direct && plan->kept_in[0] == 1) searching->loops->cols(block->count, q, k + 1, best, index);
      else {
        amp__load(searching->cls, buf, plan->dtype, q, plan->kept_in[0], block->count);
        searching->loops->cols(block->count, buf, k + 1, best, index);
      }
    }
  } else
    for (int j = 0; j < block->count; j++) {
      const char *base = block->from + j * plan->kept_in[0] * plan->item_size;
      char *v = best + j * column_stride;
      amp__load(searching->cls, v, plan->dtype, base, 1, 1);
      index[j] = 1;
      for (int64_t at = 0; at < count; at += AMP_CHUNK) {
        int64_t m = count - at < AMP_CHUNK ? count - at : AMP_CHUNK, found;
        const char *q = base + at * plan->reduced_in[0] * plan->item_size;
        if (direct && plan->reduced_in[0] == 1) found = searching->loops->row(m, q, v);
        else {
          amp__load(searching->cls, buf, plan->dtype, q, plan->reduced_in[0], m);
          found = searching->loops->row(m, buf, v);
        }
        if (found >= 0) index[j] = at + found + 1;
      }
    }
  amp__move(8, block->out, plan->kept_out[0], index, 1, block->count);
  if (value_out) amp__store(searching->values->dtype, value_out, plan->kept_out[0], searching->cls, best, block->count);
}

static void search_part(int64_t begin, int64_t end, void *ctx)
{
  const searching *searching = ctx;
  for (int64_t i = begin; i < end; i++) {
    amp_rblock block;
    amp__rblock(searching->plan, i, &block);
    /* values and indices are fresh and lie alike */
    search_block(searching, &block,
                 searching->values
                     ? (char *)amp__data(searching->values) + block.kept * amp__dtype_size[searching->values->dtype]
                     : NULL);
  }
}

static int search(const amp_tensor *tensor, amp_tensor *index, amp_tensor *values, uint32_t mask, bool most)
{
  static const arg_loops *const loops[2][3] = { { &less_f, &less_d, &less_i }, { &more_f, &more_d, &more_i } };
  amp_rplan plan;
  int cls = amp__dtype_class[tensor->dtype];
  amp__rplan_mask(&plan, tensor, index, mask);
  if (plan.outputs == 0) return 0;
  if (plan.reduced == 0)
    return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)",
                     amp__shape_str(tensor->ndim, tensor->size));
  searching searching = { &plan, loops[most][cls], cls, values };
  amp__parallel(amp__threads(tensor->numel * 2), plan.blocks, 1, search_part, &searching);
  return 0;
}

static int extreme(amp_call *call, bool most)
{
  const args_max *args = AMP_ARGS(call, max);
  if (!AMP_GIVEN(args->dim)) {
    if (call->in[0]->numel == 0 && call->out[0]->numel > 0)
      return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)",
                       amp__shape_str(call->in[0]->ndim, call->in[0]->size));
    return most ? amp__max_all(call) : amp__min_all(call);
  }
  amp_tensor *values = call->out[0], *index = call->out[1];
  if (memcmp(values->stride, index->stride, sizeof(int64_t) * index->ndim) == 0)
    return search(call->in[0], index, values, 1u << args->dim, most);
  amp_tensor *value = amp__tensor_make(values->dtype, AMP_CPU, 0, values->ndim, values->size);
  int status = value ? search(call->in[0], index, value, 1u << args->dim, most) : amp__S->err.code;
  if (status == 0) status = amp__copy_to(values, value);
  amp__free(value);
  return status;
}
int amp__cpu_max(amp_call *call) { return extreme(call, true); }
int amp__cpu_min(amp_call *call) { return extreme(call, false); }

static int arg(amp_call *call, bool most)
{
  const args_argmax *args = AMP_ARGS(call, argmax);
  amp_tensor *tensor = call->in[0];
  if (AMP_GIVEN(args->dim)) return search(tensor, call->out[0], NULL, 1u << args->dim, most);
  /* over everything: a vector in C order */
  amp_tensor *flat = amp__dense(tensor, tensor->dtype);
  if (flat == NULL) return amp__S->err.code;
  int64_t one = 1;
  amp_tensor *value = amp__tensor_view(flat, 1, &tensor->numel, &one, flat->offset),
             *output = value ? amp__tensor_view(call->out[0], 0, NULL, NULL, call->out[0]->offset) : NULL;
  int status = output ? search(value, output, NULL, 1, most) : amp__S->err.code;
  amp__free(output);
  amp__free(value);
  amp__free(flat);
  return status;
}
int amp__cpu_argmax(amp_call *call) { return arg(call, true); }
int amp__cpu_argmin(amp_call *call) { return arg(call, false); }

/* -- Running sums ------------------------------------------------------------------------- */

typedef struct {
  const amp_rplan *plan;
  int64_t out_step;
  bool product;
} running;

/* Lines side by side: each addition waits for the one before in its line, and not for those of other lines. */
enum { LINES = 4, LINE = AMP_CHUNK / LINES };
#define ALONG(type, a, op)                                                \
  do {                                                                    \
    type s0 = (a)[0], s1 = (a)[1], s2 = (a)[2], s3 = (a)[3];              \
    type *x0 = buf##a, *x1 = x0 + LINE, *x2 = x1 + LINE, *x3 = x2 + LINE; \
    for (int64_t k = 0; k < m; k++) {                                     \
      x0[k] = s0 = s0 op x0[k];                                           \
      x1[k] = s1 = s1 op x1[k];                                           \
      x2[k] = s2 = s2 op x2[k];                                           \
      x3[k] = s3 = s3 op x3[k];                                           \
    }                                                                     \
    (a)[0] = s0, (a)[1] = s1, (a)[2] = s2, (a)[3] = s3;                   \
  } while (0)

static void lines_part(const running *running, const amp_rblock *block, int first, int lines, int cls)
{
  const amp_rplan *plan = running->plan;
  const double one = running->product;
  double d[LINES] = { one, one, one, one }, bufd[LINES * LINE] = { 0 };
  uint64_t u[LINES] = { (uint64_t)one, (uint64_t)one, (uint64_t)one, (uint64_t)one }, *bufu = (uint64_t *)bufd;
  for (int64_t at = 0; at < plan->reduced; at += LINE) {
    const int64_t m = plan->reduced - at < LINE ? plan->reduced - at : LINE;
    for (int j = 0; j < lines; j++)
      amp__load(cls, bufd + j * LINE, plan->dtype,
                block->from + ((first + j) * plan->kept_in[0] + at * plan->reduced_in[0]) * plan->item_size,
                plan->reduced_in[0], m);
    if (cls == AMP_C_F64 && running->product) ALONG(double, d, *);
    else if (cls == AMP_C_F64) ALONG(double, d, +);
    else if (running->product) ALONG(uint64_t, u, *);
    else ALONG(uint64_t, u, +);
    for (int j = 0; j < lines; j++)
      amp__store(plan->out_dtype,
                 block->out + ((first + j) * plan->kept_out[0] + at * running->out_step) * plan->out_item_size,
                 running->out_step, cls, bufd + j * LINE, m);
  }
}

static void running_part(int64_t begin, int64_t end, void *ctx)
{
  const running *running = ctx;
  const amp_rplan *plan = running->plan;
  double sum[AMP_CHUNK], buf[AMP_CHUNK];
  int64_t *isum = (int64_t *)sum, *ibuf = (int64_t *)buf;
  bool whole = amp__dtype_class[plan->out_dtype] == AMP_C_I64;
  int cls = whole ? AMP_C_I64 : AMP_C_F64;
  for (int64_t i = begin; i < end; i++) {
    amp_rblock block;
    amp__rblock(plan, i, &block);
    if (plan->columns) {
      for (int j = 0; j < block.count; j++) {
        if (whole) isum[j] = running->product;
        else sum[j] = running->product;
      }
      for (int64_t k = 0; k < plan->reduced; k++) {
        amp__load(cls, buf, plan->dtype, block.from + k * plan->reduced_in[0] * plan->item_size, plan->kept_in[0],
                  block.count);
        if (running->product)
          for (int j = 0; j < block.count; j++) {
            if (whole) isum[j] = (int64_t)((uint64_t)isum[j] * (uint64_t)ibuf[j]);
            else sum[j] *= buf[j];
          }
        else if (whole)
          for (int j = 0; j < block.count; j++) isum[j] = (int64_t)((uint64_t)isum[j] + (uint64_t)ibuf[j]);
        else
          for (int j = 0; j < block.count; j++) sum[j] += buf[j];
        amp__store(plan->out_dtype, block.out + k * running->out_step * plan->out_item_size, plan->kept_out[0], cls,
                   sum, block.count);
      }
    } else
      for (int j = 0; j < block.count; j += LINES)
        lines_part(running, &block, j, block.count - j < LINES ? block.count - j : LINES, cls);
  }
}

/* Sums and products in double (int64 for integers), rounded as they are stored */
static int run(amp_call *call, bool product, bool back)
{
  const args_cumsum_back *args = AMP_ARGS(call, cumsum_back); /* the first of all these rows' */
  const amp_tensor *tensor = call->in[0], *o = call->out[0];
  amp_rplan plan;
  int outdim[AMP_MAX_DIM], dim = (int)args->dim, status = amp__check_cast(tensor, o->dtype);
  if (status < 0) return status;
  for (int d = 0; d < tensor->ndim; d++) outdim[d] = d == dim ? -1 : d;
  amp__rplan(&plan, tensor, o, outdim);
  if (tensor->numel == 0) return 0;
  running running = { &plan, tensor->ndim ? o->stride[dim] : 1, product };
  if (tensor->ndim && plan.reduced > 1) plan.reduced_in[0] = tensor->stride[dim];
  if (back && tensor->ndim) { /* the same from the other end */
    plan.input += (plan.reduced - 1) * plan.reduced_in[0] * plan.item_size;
    plan.out += (plan.reduced - 1) * running.out_step * plan.out_item_size;
    plan.reduced_in[0] = -plan.reduced_in[0];
    running.out_step = -running.out_step;
  }
  amp__parallel(amp__threads(tensor->numel * 4), plan.blocks, 1, running_part, &running);
  return 0;
}
int amp__cpu_cumsum(amp_call *call) { return run(call, false, false); }
int amp__cpu_cumsum_back(amp_call *call) { return run(call, false, true); }
int amp__cpu_cumprod(amp_call *call) { return run(call, true, false); }

/* -- Equality ---------------------------------------------------------------------------------- */

#define DIFFER(name, T)                                                                         \
  static AMP_CLONES_WIDE void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                                             \
    const T *x = p[0], *y = p[1];                                                               \
    int differ = 0;                                                                             \
    for (int64_t i = 0; i < n; i++) differ |= x[i] != y[i];                                     \
    if (differ) __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);                              \
  }
DIFFER(differ_f, float)
DIFFER(differ_d, double)
DIFFER(differ_i, int64_t)

int amp__cpu_equal(amp_call *call)
{
  static const amp_loop_fn loops[3] = { differ_f, differ_d, differ_i };
  int differ = !amp__same_size(call->in[0], call->in[1]);
  if (!differ) {
    int cls = amp__class_of(-1, call->in, 2);
    const uint8_t classes[2] = { (uint8_t)cls, (uint8_t)cls };
    amp_loop loop = { loops[cls], &differ, 0, 0, 1 };
    amp__elementwise(&loop, 2, call->in, classes);
  }
  *AMP_DATA(uint8_t, call->out[0]) = !differ;
  return 0;
}
