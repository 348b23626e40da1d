/*
** ops/order/order.c: ops about the order of a row: sort, argsort, topk, kthvalue,
** median, nanmedian, mode.
**
** A row (a line along one dimension) becomes items of key and place (ops/order/sort.h),
** which are sorted or selected; what is left of them names the results. Rows are
** shared among threads, each with a piece of one block of scratch memory. topk
** of few never holds its row: it keeps what beats the k-th best so far.
*/
#include "ops/order/sort.h"
#include "cpu/vector_math.h"

enum { SORT, TOPK, KTH, MEDIAN, NANMEDIAN, MODE };
typedef struct order {
  int what, dtype, dims;
  bool flip, sorted, wide, lean;   /* what: an op, above; wide: 64-bit keys; lean: topk without the whole row */
  int64_t length, rows, kth, room; /* kth: of topk how many, else a place, from 0; room: items of one scratch array */
  int64_t size[AMP_MAX_DIM], in_stride[AMP_MAX_DIM], value_stride[AMP_MAX_DIM],
      index_stride[AMP_MAX_DIM]; /* of the other dimensions, `dims` of them */
  int64_t step, value_step, index_step;
  const char *input;
  char *values; /* NULL: not wanted */
  int64_t *index;
  char *scratch;
  int64_t scratch_bytes, parts;
} order;

#define KEY32(item) ((uint32_t)((item) >> 32))
#define AT32(item) ((int64_t)((item)&0xffffffffu))

#define ITEM uint64_t
#define key_type uint32_t
#define NAME(x) x##32
#define MAKE(key, place) ((uint64_t)(key) << 32 | (uint64_t)(place))
#define AT AT32
#define KEY KEY32
#define CLONES AMP_CLONES
#include "ops/order/order_body.h"

#define ITEM amp_pair
#define key_type uint64_t
#define NAME(x) x##64
#define MAKE(key, place) ((amp_pair){ (key), (uint64_t)(place) })
#define AT(item) ((int64_t)(item).place)
#define KEY(item) ((item).key)
#define CLONES AMP_CLONES_WIDE
#include "ops/order/order_body.h"

/* Long sorted rows of float32: from the keys, but for zeros and NaN, of which keys know one each */
static void sorted_floats(const order *task, float *out, const char *data, const uint64_t *item, int64_t count)
{
  const uint32_t mask = task->flip ? ~0u : 0, special[2] = { 0x80000000u ^ mask, amp__nan_key() ^ mask };
  amp__keys32_to_floats(out, item, count, task->flip);
  for (int j = 0; j < 2; j++) {
    int64_t lo = 0, hi = count;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      if (KEY32(item[mid]) < special[j]) lo = mid + 1;
      else hi = mid;
    }
    for (; lo < count && KEY32(item[lo]) == special[j]; lo++)
      out[lo] = ((const float *)data)[AT32(item[lo]) * task->step];
  }
}

static void order_part(int64_t begin, int64_t hi, void *ctx)
{
  const order *task = ctx;
  const int element_size = amp__dtype_size[task->dtype];
  for (int64_t part = begin; part < hi; part++) {
    char *scratch = task->scratch + part * task->scratch_bytes;
    const int64_t end = task->rows * (part + 1) / task->parts;
    for (int64_t r = task->rows * part / task->parts; r < end; r++) {
      int64_t i = 0, v = 0, places = 0, rest = r;
      for (int d = task->dims - 1; d >= 0; d--) {
        const int64_t at = rest % task->size[d];
        rest /= task->size[d];
        i += at * task->in_stride[d];
        v += at * task->value_stride[d];
        places += at * task->index_stride[d];
      }
      const char *data = task->input + i * element_size;
      char *out = task->values ? task->values + v * element_size : NULL;
      if (task->wide) {
        amp_pair *item = (amp_pair *)scratch, *first;
        const int64_t m = row_64(task, data, item, item + task->room, &first);
        if (out) values_64(task, out, data, first, m);
        if (task->index) places_64(task, task->index + places, first, m);
      } else {
        uint64_t *item = (uint64_t *)scratch, *first;
        const int64_t m = row_32(task, data, item, item + task->room, &first);
        if (out && m > 2048 && task->dtype == AMP_FLOAT32 && task->value_step == 1
            && (task->what == SORT || task->sorted))
          sorted_floats(task, (float *)out, data, first, m);
        else if (out) values_32(task, out, data, first, m);
        if (task->index) places_32(task, task->index + places, first, m);
      }
    }
  }
}

/* dim < 0: the tensor is one row, in C order. values, index: NULL or of the row's dtype and int64. They lack the
** dimension unless they have as many as the tensor. */
static int run(order *task, const amp_tensor *tensor, int dim, amp_tensor *values, amp_tensor *index)
{
  const amp_tensor *like = values ? values : index;
  task->dtype = tensor->dtype;
  task->length = dim < 0 || tensor->ndim == 0 ? tensor->numel : tensor->size[dim];
  task->step = dim < 0 || tensor->ndim == 0 ? 1 : tensor->stride[dim];
  task->value_step = task->index_step = 0;
  task->rows = 1;
  task->dims = 0;
  task->wide = amp__dtype_size[tensor->dtype] == 8 || task->length > UINT32_MAX;
  bool kept = like->ndim == tensor->ndim;
  for (int axis = 0, k = 0; axis < tensor->ndim && dim >= 0; axis++) {
    if (axis == dim) {
      if (kept && values) task->value_step = values->stride[axis];
      if (kept && index) task->index_step = index->stride[axis];
      k += kept;
      continue;
    }
    task->size[task->dims] = tensor->size[axis];
    task->in_stride[task->dims] = tensor->stride[axis];
    task->value_stride[task->dims] = values ? values->stride[k] : 0;
    task->index_stride[task->dims++] = index ? index->stride[k] : 0;
    task->rows *= tensor->size[axis];
    k++;
  }
  if (task->rows == 0 || task->length == 0 || like->numel == 0) return 0;
  if (task->length > UINT32_MAX && amp__dtype_size[tensor->dtype] < 8)
    return amp__fail(AMP_E_UNSUPPORTED, "%lld elements in one row are more than %lld", (long long)task->length,
                     (long long)UINT32_MAX);
  AMP_ASSERT(!values || values->dtype == tensor->dtype);
  AMP_ASSERT(!index || index->dtype == AMP_INT64);
  AMP_ASSERT(task->kth >= 0 && task->kth <= task->length);
  task->input = amp__data(tensor);
  task->values = values ? amp__data(values) : NULL;
  task->index = index ? AMP_DATA(int64_t, index) : NULL;
  task->lean = task->what == TOPK && task->kth < task->length / 8;
  task->room = task->lean ? 4 * task->kth + 2 * AMP_CHUNK : task->length;
  if (task->room > task->length + AMP_CHUNK) task->room = task->length + AMP_CHUNK;
  task->scratch_bytes = 2 * task->room * (task->wide ? (int64_t)sizeof(amp_pair) : 8);
  task->parts = amp__threads(task->length * task->rows * 16);
  if (task->parts > task->rows) task->parts = task->rows;
  amp_block *lent = amp__block_new(AMP_CPU, 0, (size_t)(task->scratch_bytes * task->parts));
  if (lent == NULL) return amp__S->err.code;
  task->scratch = lent->data;
  amp__parallel((int)task->parts, task->parts, 1, order_part, task);
  amp__block_free(lent);
  return 0;
}

/* run, by way of a tensor of the right dtype where the receiver has another */
static int run_into(order *task, const amp_tensor *tensor, int dim, amp_tensor *values, amp_tensor *index)
{
  amp_tensor *v = values, *x = index;
  int status = 0;
  if (v && v->dtype != tensor->dtype) v = amp__tensor_make(tensor->dtype, AMP_CPU, 0, v->ndim, v->size);
  if (x && x->dtype != AMP_INT64) x = amp__tensor_make(AMP_INT64, AMP_CPU, 0, x->ndim, x->size);
  if ((values && !v) || (index && !x)) status = amp__S->err.code;
  if (status == 0) status = run(task, tensor, dim, v, x);
  if (status == 0 && v != values) status = amp__copy_to(values, v);
  if (status == 0 && x != index) status = amp__copy_to(index, x);
  if (v != values) amp__free(v);
  if (x != index) amp__free(x);
  return status;
}

int amp__cpu_sort(amp_call *call)
{
  const args_sort *args = AMP_ARGS(call, sort);
  order task = { .what = SORT, .flip = args->descending != 0 };
  return run_into(&task, call->in[0], (int)args->dim, call->out[0], call->out[1]);
}

int amp__cpu_argsort(amp_call *call)
{
  const args_argsort *args = AMP_ARGS(call, argsort);
  order task = { .what = SORT, .flip = args->descending != 0 };
  return run_into(&task, call->in[0], (int)args->dim, NULL, call->out[0]);
}

int amp__cpu_topk(amp_call *call)
{
  const args_topk *args = AMP_ARGS(call, topk);
  order task = { .what = TOPK, .kth = args->k, .flip = args->largest != 0, .sorted = args->sorted != 0 };
  return run_into(&task, call->in[0], (int)args->dim, call->out[0], call->out[1]);
}

int amp__cpu_kthvalue(amp_call *call)
{
  const args_kthvalue *args = AMP_ARGS(call, kthvalue);
  order task = { .what = KTH, .kth = args->k - 1 };
  return run_into(&task, call->in[0], (int)args->dim, call->out[0], call->out[1]);
}

int amp__cpu_mode(amp_call *call)
{
  order task = { .what = MODE };
  return run_into(&task, call->in[0], (int)AMP_ARGS(call, mode)->dim, call->out[0], call->out[1]);
}

/* dim: AMP_NONE for the median of all elements */
static int median(amp_call *call, int what, int64_t dim)
{
  order task = { .what = what };
  if (dim != AMP_NONE) return run_into(&task, call->in[0], (int)dim, call->out[0], call->out[1]);
  amp_tensor *flat = amp__dense(call->in[0], call->in[0]->dtype);
  if (flat == NULL) return amp__S->err.code;
  int status = run_into(&task, flat, -1, call->out[0], NULL);
  amp__free(flat);
  return status;
}
int amp__cpu_median(amp_call *call) { return median(call, MEDIAN, AMP_ARGS(call, median)->dim); }
int amp__cpu_nanmedian(amp_call *call) { return median(call, NANMEDIAN, AMP_ARGS(call, nanmedian)->dim); }
