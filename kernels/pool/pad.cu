/*
** pad.cu: rows pad and pad_backward. Every mode maps the places of a dimension to
** places of the input (-1: the constant). pad moves elements as bytes, a thread an
** element, in the order in which the result lies. pad_backward gathers what came
** from each element, so results repeat.
**
** An element is read once and written once, through registers alone: memory's speed bounds it.
*/
#include "common/kernel.cuh"

namespace {

/* Switches over it are exhaustive: a mode that one does not name is an error where they are compiled */
typedef decltype(PAD_MODE_CONSTANT) pad_mode;
static_assert(PAD_MODE_COUNT == 4, "mapped and origin know four modes");

/* A dimension: places of the padded side and of the other, and their strides */
struct side {
  int64_t padded, other, before, lo, hi, padded_stride, other_stride;
};
struct padding {
  int32_t dims, mode;
  int64_t numel;
  char *padded, *other;
  int32_t padded_dtype, other_dtype;
  side d[AMP_MAX_DIM];
};

__device__ __forceinline__ int64_t mapped(const side &s, int mode, int64_t i)
{
  i -= s.before;
  if (i >= s.lo && i < s.hi) return i;
  switch ((pad_mode)mode) {
  case PAD_MODE_REFLECT: return i < 0 ? -i : i >= s.other ? 2 * (s.other - 1) - i : i;
  case PAD_MODE_REPLICATE: return i < 0 ? 0 : i >= s.other ? s.other - 1 : i;
  case PAD_MODE_CIRCULAR: return i < s.lo ? i + s.hi - s.lo : i - (s.hi - s.lo);
  case PAD_MODE_CONSTANT: return -1;
  case PAD_MODE_COUNT: break;
  }
  AMP_NEVER();
}

template <class B, class I> __global__ void __launch_bounds__(256) spread(const padding task, B value)
{
  AMP_FOR(j, task.numel)
  {
    I i = (I)j;
    int64_t to = 0, from = 0;
    bool there = true;
    for (int d = task.dims - 1; d >= 0; d--) {
      I q = d ? i / (I)task.d[d].padded : 0;
      int64_t at = (int64_t)(i - q * (I)task.d[d].padded), m = mapped(task.d[d], task.mode, at);
      to += at * task.d[d].padded_stride;
      from += m * task.d[d].other_stride;
      there = there && m >= 0;
      i = q;
    }
    ((B *)task.padded)[to] = there ? ((const B *)task.other)[from] : value;
  }
}

/* Places of the padded side that come from place i: run r of them is first .. first + count - 1. Up to three runs: in
** the middle (0), before the input (1), behind it (2). */
__device__ __forceinline__ int64_t origin(const side &s, int mode, int64_t i, int r, int64_t *count)
{
  const int64_t span = s.hi - s.lo;
  int64_t first = s.before + i, there = 1;
  switch ((pad_mode)mode) {
  case PAD_MODE_CONSTANT: there = r == 0; break;
  case PAD_MODE_REFLECT:
    if (r == 1) {
      first = s.before - i;
      there = i > 0;
    } else if (r == 2) {
      const int64_t p = 2 * (s.other - 1) - i;
      first = s.before + p;
      there = p >= s.other;
    }
    break;
  case PAD_MODE_REPLICATE:
    if (r == 1) {
      first = 0;
      there = i == 0 && s.before > 0 ? s.before : 0;
    } else if (r == 2) {
      first = s.before + s.other;
      there = i == s.other - 1 && s.padded > first ? s.padded - first : 0;
    }
    break;
  case PAD_MODE_CIRCULAR:
    if (r == 0) there = i >= s.lo && i < s.hi;
    else if (r == 1) {
      first -= span;
      there = i - span < s.lo;
    } else {
      first += span;
      there = i + span >= s.hi;
    }
    break;
  case PAD_MODE_COUNT: AMP_NEVER();
  }
  *count = first < 0 || first + there > s.padded ? 0 : there; /* what was taken away */
  return first;
}

template <class T> __global__ void __launch_bounds__(256) collect(const padding task)
{
  AMP_FOR(j, task.numel)
  {
    int64_t i = j, to = 0, at[AMP_MAX_DIM], from = 0;
    bool there = true;
    for (int d = task.dims - 1; d >= 0; d--) {
      int64_t q = d ? i / task.d[d].other : 0;
      at[d] = i - q * task.d[d].other;
      to += at[d] * task.d[d].other_stride;
      if (d < task.dims - 3) { /* dimensions outside of the last three have no modes but the constant */
        int64_t p = task.d[d].before + at[d];
        there = there && p >= 0 && p < task.d[d].padded;
        from += p * task.d[d].padded_stride;
      }
      i = q;
    }
    T sum = 0;
    const side &a = task.d[task.dims - 3], &b = task.d[task.dims - 2], &c = task.d[task.dims - 1];
    int runs = task.mode == PAD_MODE_CONSTANT ? 1 : 3;
    for (int ra = 0; ra < runs && there; ra++) {
      int64_t na, fa = origin(a, task.mode, at[task.dims - 3], ra, &na);
      for (int64_t u = fa; u < fa + na; u++)
        for (int rb = 0; rb < runs; rb++) {
          int64_t nb, fb = origin(b, task.mode, at[task.dims - 2], rb, &nb);
          for (int64_t v = fb; v < fb + nb; v++)
            for (int rc = 0; rc < runs; rc++) {
              int64_t nc, fc = origin(c, task.mode, at[task.dims - 1], rc, &nc);
              for (int64_t w = fc; w < fc + nc; w++)
                sum += amp_load<T>(task.padded, task.padded_dtype,
                                   from + u * a.padded_stride + v * b.padded_stride + w * c.padded_stride);
            }
        }
    }
    amp_store<T>(task.other, task.other_dtype, to, sum);
  }
}

/* Dimensions of the padded side `t` and of the other, `u`, at least three */
static padding padding_of(const amp_tensor *t, const amp_tensor *u, int64_t npad, const int64_t *pad, int mode)
{
  padding task;
  memset((void *)&task, 0, sizeof task);
  int lead = t->ndim < 3 ? 3 - t->ndim : 0;
  task.dims = t->ndim + lead;
  task.mode = mode;
  task.padded = (char *)amp__data(t);
  task.other = (char *)amp__data(u);
  task.padded_dtype = t->dtype;
  task.other_dtype = u->dtype;
  for (int d = 0; d < task.dims; d++) {
    int e = d - lead, back = t->ndim - 1 - e;
    side s = { 1, 1, 0, 0, 1, 0, 0 };
    if (e >= 0) {
      int64_t before = back < npad / 2 ? pad[2 * back] : 0, after = t->size[e] - u->size[e] - before, m = u->size[e];
      s = side{
        t->size[e], m, before, before < 0 ? -before : 0, after < 0 ? m + after : m, t->stride[e], u->stride[e]
      };
    }
    task.d[d] = s;
  }
  return task;
}

/* The padded side's dimensions by falling stride, so that neighbouring threads write neighbours */
static void sort(padding *task)
{
  for (int i = 1; i < task->dims; i++) {
    side s = task->d[i];
    int j = i;
    for (; j > 0 && s.padded != 1 && task->d[j - 1].padded != 1 && task->d[j - 1].padded_stride < s.padded_stride; j--)
      task->d[j] = task->d[j - 1];
    task->d[j] = s;
  }
}

template <class B> static void run(const padding &task, int64_t value)
{
  unsigned grid = amp_grid(task.numel, 256, 32);
  if (task.numel < (int64_t)1 << 31) AMP_LAUNCH((spread<B, uint32_t>), grid, 256, 0, task, (B)value);
  else AMP_LAUNCH((spread<B, int64_t>), grid, 256, 0, task, (B)value);
}

} // namespace

extern "C" {

int amp__cuda_pad(amp_call *c)
{
  const args_pad *args = AMP_ARGS(c, pad);
  amp_tensor *x = c->in[0], *y = c->out[0];
  int64_t value = 0;
  if (y->numel == 0) return 0;
  padding task = padding_of(y, x, args->pad.n, args->pad.at, (int)args->mode);
  task.numel = y->numel;
  sort(&task);
  amp__value_put(&value, y->dtype, args->value);
  switch (amp__dtype_size[y->dtype]) {
  case 1: run<uint8_t>(task, value); break;
  case 2: run<uint16_t>(task, value); break;
  case 4: run<uint32_t>(task, value); break;
  default: run<uint64_t>(task, value);
  }
  return 0;
}

int amp__cuda_pad_backward(amp_call *c)
{
  const args_pad_backward *args = AMP_ARGS(c, pad_backward);
  amp_tensor *g = c->in[0], *x = c->out[0];
  if (x->numel == 0 || g->numel == 0) return x->numel ? amp__cuda_fill_value(x, 0) : 0;
  padding task = padding_of(g, x, args->pad.n, args->pad.at, (int)args->mode);
  task.numel = x->numel;
  if (x->dtype == AMP_FLOAT64) AMP_LAUNCH((collect<double>), amp_grid(task.numel, 256, 32), 256, 0, task);
  else AMP_LAUNCH((collect<float>), amp_grid(task.numel, 256, 32), 256, 0, task);
  return 0;
}
}
