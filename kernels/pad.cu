/*
** pad.cu: rows pad and pad_backward. Every mode maps the places of a dimension to
** places of the input (-1: the constant). pad moves elements as bytes, a thread an
** element, in the order in which the result lies. pad_backward gathers what came
** from each element, so results repeat.
*/
#include "kernel.cuh"

namespace {

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* A dimension: n places of the padded side (stride ps), m of the other (stride os) */
struct side { int64_t n, m, before, lo, hi, ps, os; };
struct padding { int32_t nd, mode; int64_t numel; char *p, *o; int32_t pdtype, odtype; side d[AMP_MAX_DIM]; };

__device__ __forceinline__ int64_t mapped(const side &s, int mode, int64_t i)
{
  i -= s.before;
  if (i >= s.lo && i < s.hi) return i;
  switch (mode) {
  case REFLECT: return i < 0 ? -i : i >= s.m ? 2 * (s.m - 1) - i : i;
  case REPLICATE: return i < 0 ? 0 : i >= s.m ? s.m - 1 : i;
  case CIRCULAR: return i < s.lo ? i + s.hi - s.lo : i - (s.hi - s.lo);
  default: return -1;
  }
}

template <class B, class I> __global__ void __launch_bounds__(256) spread(const padding k, B value)
{
  AMP_FOR(j, k.numel) {
    I i = (I)j;
    int64_t to = 0, from = 0;
    bool there = true;
    for (int d = k.nd - 1; d >= 0; d--) {
      I q = d ? i / (I)k.d[d].n : 0;
      int64_t at = (int64_t)(i - q * (I)k.d[d].n), m = mapped(k.d[d], k.mode, at);
      to += at * k.d[d].ps;
      from += m * k.d[d].os;
      there = there && m >= 0;
      i = q;
    }
    ((B *)k.p)[to] = there ? ((const B *)k.o)[from] : value;
  }
}

/* Places of the padded side that come from place i: run r of them is first .. first + count - 1; there are up to three runs */
__device__ __forceinline__ int64_t origin(const side &s, int mode, int64_t i, int r, int64_t *count)
{
  int64_t span = s.hi - s.lo, j, p;
  *count = 1;
  switch (r) {
  case 0:
    j = s.before + i;
    if (mode == CIRCULAR && (i < s.lo || i >= s.hi)) *count = 0;
    break;
  case 1: /* before the input */
    p = mode == REFLECT ? -i : i - span;
    j = s.before + p;
    if (mode == REPLICATE) {
      j = 0;
      *count = i == 0 && s.before > 0 ? s.before : 0;
    } else if (mode == CONSTANT || p >= (mode == REFLECT ? 0 : s.lo) || (mode == REFLECT && i == 0)) *count = 0;
    break;
  default:
    p = mode == REFLECT ? 2 * (s.m - 1) - i : i + span;
    j = s.before + p;
    if (mode == REPLICATE) {
      j = s.before + s.m;
      *count = i == s.m - 1 && s.n > j ? s.n - j : 0;
    } else if (mode == CONSTANT || p < (mode == REFLECT ? s.m : s.hi)) *count = 0;
  }
  if (j < 0 || j + *count > s.n) *count = 0; /* what was taken away */
  return j;
}

template <class T> __global__ void __launch_bounds__(256) collect(const padding k)
{
  AMP_FOR(j, k.numel) {
    int64_t i = j, to = 0, at[AMP_MAX_DIM], from = 0;
    bool there = true;
    for (int d = k.nd - 1; d >= 0; d--) {
      int64_t q = d ? i / k.d[d].m : 0;
      at[d] = i - q * k.d[d].m;
      to += at[d] * k.d[d].os;
      if (d < k.nd - 3) { /* dimensions outside of the last three have no modes but the constant */
        int64_t p = k.d[d].before + at[d];
        there = there && p >= 0 && p < k.d[d].n;
        from += p * k.d[d].ps;
      }
      i = q;
    }
    T sum = 0;
    const side &a = k.d[k.nd - 3], &b = k.d[k.nd - 2], &c = k.d[k.nd - 1];
    int runs = k.mode == CONSTANT ? 1 : 3;
    for (int ra = 0; ra < runs && there; ra++) {
      int64_t na, fa = origin(a, k.mode, at[k.nd - 3], ra, &na);
      for (int64_t u = fa; u < fa + na; u++)
        for (int rb = 0; rb < runs; rb++) {
          int64_t nb, fb = origin(b, k.mode, at[k.nd - 2], rb, &nb);
          for (int64_t v = fb; v < fb + nb; v++)
            for (int rc = 0; rc < runs; rc++) {
              int64_t nc, fc = origin(c, k.mode, at[k.nd - 1], rc, &nc);
              for (int64_t w = fc; w < fc + nc; w++) sum += amp_load<T>(k.p, k.pdtype, from + u * a.ps + v * b.ps + w * c.ps);
            }
        }
    }
    amp_store<T>(k.o, k.odtype, to, sum);
  }
}

/* Dimensions of the padded side `t` and of the other, `u`, at least three */
static padding padding_of(const amp_tensor *t, const amp_tensor *u, const amp_slot *pad, int mode)
{
  padding k;
  memset((void *)&k, 0, sizeof k);
  int lead = t->ndim < 3 ? 3 - t->ndim : 0;
  k.nd = t->ndim + lead;
  k.mode = mode;
  k.p = (char *)amp__data(t);
  k.o = (char *)amp__data(u);
  k.pdtype = t->dtype;
  k.odtype = u->dtype;
  for (int d = 0; d < k.nd; d++) {
    int e = d - lead, back = t->ndim - 1 - e;
    side s = { 1, 1, 0, 0, 1, 0, 0 };
    if (e >= 0) {
      int64_t before = back < pad[0].i / 2 ? pad[1 + 2 * back].i : 0, after = t->size[e] - u->size[e] - before, m = u->size[e];
      s = side{ t->size[e], m, before, before < 0 ? -before : 0, after < 0 ? m + after : m, t->stride[e], u->stride[e] };
    }
    k.d[d] = s;
  }
  return k;
}

/* The padded side's dimensions by falling stride, so that neighbouring threads write neighbours */
static void sort(padding *k)
{
  for (int i = 1; i < k->nd; i++) {
    side s = k->d[i];
    int j = i;
    for (; j > 0 && s.n != 1 && k->d[j - 1].n != 1 && k->d[j - 1].ps < s.ps; j--) k->d[j] = k->d[j - 1];
    k->d[j] = s;
  }
}

template <class B> static void run(const padding &k, int64_t value)
{
  unsigned grid = amp_grid(k.numel, 256, 32);
  if (k.numel < (int64_t)1 << 31) AMP_LAUNCH((spread<B, uint32_t>), grid, 256, 0, k, (B)value);
  else AMP_LAUNCH((spread<B, int64_t>), grid, 256, 0, k, (B)value);
}

} // namespace

extern "C" {

int amp__cuda_pad(amp_call *c)
{
  amp_tensor *x = c->in[0], *y = c->out[0];
  int64_t value = 0;
  if (y->numel == 0) return 0;
  padding k = padding_of(y, x, c->a, (int)c->a[17].i);
  k.numel = y->numel;
  sort(&k);
  amp__value_put(&value, y->dtype, c->a[18].f);
  switch (amp__dtype_size[y->dtype]) {
  case 1: run<uint8_t>(k, value); break;
  case 2: run<uint16_t>(k, value); break;
  case 4: run<uint32_t>(k, value); break;
  default: run<uint64_t>(k, value);
  }
  return 0;
}

int amp__cuda_pad_backward(amp_call *c)
{
  amp_tensor *g = c->in[0], *x = c->out[0];
  if (x->numel == 0 || g->numel == 0) return x->numel ? amp__cuda_fill_value(x, 0) : 0;
  padding k = padding_of(g, x, c->a + 9, (int)c->a[26].i);
  k.numel = x->numel;
  if (x->dtype == AMP_FLOAT64) AMP_LAUNCH((collect<double>), amp_grid(k.numel, 256, 32), 256, 0, k);
  else AMP_LAUNCH((collect<float>), amp_grid(k.numel, 256, 32), 256, 0, k);
  return 0;
}

}
