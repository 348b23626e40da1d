/*
** cpu_copy.c: copies between layouts and dtypes, and the kernels that are such:
** copy, clone, cast, fill, to_device, flip, cat, triangles, strided windows.
**
** A copy is the engine with no loop. Special cases within one dtype: all dense in
** one order is memcpy; rows that are dense (or reversed) in both go row by row; a
** transposition goes in blocks of whole cache lines, for else every element of a
** column costs a line. What an integer dtype cannot hold is looked for before
** anything is written.
*/
#include <math.h>
#include "cpu_turn.h"
#include "cpu_iter.h"
#include "cpu_math.h"

/* -- Transposition --------------------------------------------------------------- */

enum { TILE = 32 };
typedef struct { char *d; const char *s; int64_t rows, cols, ds, ss; int es; } transposition;

/* d[r][c] = s[c][r]; rows of d are dense, columns of s are */
#define TILES(T) { \
  for (int64_t r0 = lo; r0 < hi; r0 += TILE) for (int64_t c0 = 0; c0 < x->cols; c0 += TILE) { \
    int64_t r1 = r0 + TILE < hi ? r0 + TILE : hi, c1 = c0 + TILE < x->cols ? c0 + TILE : x->cols; \
    T tile[TILE][TILE + 1]; \
    for (int64_t c = c0; c < c1; c++) { const T *s = (const T *)x->s + c * x->ss; for (int64_t r = r0; r < r1; r++) tile[r - r0][c - c0] = s[r]; } \
    for (int64_t r = r0; r < r1; r++) memcpy((T *)x->d + r * x->ds + c0, tile[r - r0], sizeof(T) * (size_t)(c1 - c0)); \
  } return; }

typedef uint32_t v8 __attribute__((vector_size(32), aligned(4), may_alias));

/* 8 x 8 words: swap neighbours, pairs, halves */
static inline __attribute__((always_inline)) void block8(uint32_t *d, int64_t ds, const uint32_t *s, int64_t ss)
{
  v8 a[8], b[8];
  for (int i = 0; i < 8; i++) a[i] = *(const v8 *)(s + i * ss);
  for (int i = 0; i < 8; i += 2) {
    b[i] = AMP_SHUFFLE(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = AMP_SHUFFLE(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; k++) {
      a[i + 2 * k] = AMP_SHUFFLE(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 2 * k + 1] = AMP_SHUFFLE(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; i++) {
    *(v8 *)(d + i * ds) = AMP_SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(v8 *)(d + (i + 4) * ds) = AMP_SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/* Rows lo..hi of d in blocks of 16 x 16 words: whole lines read, whole lines written */
AMP_CLONES static void transpose32(const transposition *x, int64_t lo, int64_t hi)
{
  uint32_t *d = (uint32_t *)x->d;
  const uint32_t *s = (const uint32_t *)x->s;
  int64_t r = lo, c;
  for (; r + 16 <= hi; r += 16) {
    for (c = 0; c + 16 <= x->cols; c += 16)
      for (int k = 0; k < 4; k++) {
        int64_t i = r + (k & 1) * 8, j = c + (k >> 1) * 8;
        block8(d + i * x->ds + j, x->ds, s + j * x->ss + i, x->ss);
      }
    for (; c < x->cols; c++) for (int i = 0; i < 16; i++) d[(r + i) * x->ds + c] = s[c * x->ss + r + i];
  }
  for (; r < hi; r++) for (c = 0; c < x->cols; c++) d[r * x->ds + c] = s[c * x->ss + r];
}

static void transpose_part(int64_t lo, int64_t hi, void *ctx)
{
  const transposition *x = ctx;
  switch (x->es) {
  case 1: TILES(uint8_t)
  case 2: TILES(uint16_t)
  case 4: transpose32(x, lo, hi); return;
  default: TILES(uint64_t)
  }
}

/* Same dtype, dst dense along one dimension and src along another: true if done. */
static bool transpose(int ndim, const int64_t *size, char *dst, const int64_t *ds, const char *src, const int64_t *ss, int es)
{
  int i = -1, j = -1;
  int64_t rest[AMP_MAX_DIM], at[AMP_MAX_DIM] = { 0 };
  int dim[AMP_MAX_DIM], n = 0;
  for (int d = 0; d < ndim; d++) {
    if (size[d] == 1) continue;
    if (ds[d] == 1) i = d;
    else if (ss[d] == 1) j = d;
  }
  if (i < 0 || j < 0 || ss[i] == 0 || size[i] < 8 || size[j] < 8 || size[i] * size[j] < 1024) return false;
  for (int d = 0; d < ndim; d++) if (d != i && d != j && size[d] > 1) { dim[n] = d; rest[n++] = size[d]; }
  transposition x = { dst, src, size[j], size[i], ds[j], ss[i], es };
  for (;;) {
    amp__parallel(amp__threads(x.rows * x.cols * 2), x.rows, TILE, transpose_part, &x);
    int k = n - 1;
    for (; k >= 0; k--) {
      x.d += ds[dim[k]] * es;
      x.s += ss[dim[k]] * es;
      if (++at[k] < rest[k]) break;
      x.d -= rest[k] * ds[dim[k]] * es;
      x.s -= rest[k] * ss[dim[k]] * es;
      at[k] = 0;
    }
    if (k < 0) return true;
  }
}

/* -- Rows ---------------------------------------------------------------------------- */

typedef struct {
  char *d; const char *s;
  int64_t run, size[AMP_MAX_DIM], ds[AMP_MAX_DIM], ss[AMP_MAX_DIM]; /* strides in bytes */
  int n, es; bool reversed;
} rows;

#define REVERSED(T) { T *d = (T *)dst; const T *s = (const T *)src; for (int64_t i = 0; i < n; i++) d[i] = s[-i]; return; }
AMP_CLONES static void reverse(char *dst, const char *src, int64_t n, int es)
{
  switch (es) {
  case 1: REVERSED(uint8_t)
  case 2: REVERSED(uint16_t)
  case 4: REVERSED(uint32_t)
  default: REVERSED(uint64_t)
  }
}

static void rows_part(int64_t lo, int64_t hi, void *ctx)
{
  const rows *x = ctx;
  int64_t at[AMP_MAX_DIM], k = lo;
  char *d = x->d;
  const char *s = x->s;
  for (int i = x->n - 1; i >= 0; i--) {
    at[i] = k % x->size[i];
    k /= x->size[i];
    d += at[i] * x->ds[i];
    s += at[i] * x->ss[i];
  }
  for (int64_t r = lo; r < hi; r++) {
    if (x->reversed) reverse(d, s, x->run, x->es);
    else memcpy(d, s, (size_t)(x->run * x->es));
    for (int i = x->n - 1; i >= 0; i--) {
      d += x->ds[i];
      s += x->ss[i];
      if (++at[i] < x->size[i]) break;
      d -= x->size[i] * x->ds[i];
      s -= x->size[i] * x->ss[i];
      at[i] = 0;
    }
  }
}

/* Same dtype, both dense along one dimension (src perhaps backwards), in rows worth a call: true if done. */
static bool copy_rows(int ndim, const int64_t *size, char *dst, const int64_t *ds, const char *src, const int64_t *ss, int es)
{
  int inner = -1;
  for (int d = 0; d < ndim; d++)
    if (size[d] > 1 && ds[d] == 1 && (ss[d] == 1 || ss[d] == -1)) inner = d;
  if (inner < 0 || size[inner] * es < 64) return false;
  rows x = { .d = dst, .s = src, .run = size[inner], .es = es, .reversed = ss[inner] < 0 };
  int64_t count = 1;
  for (int d = 0; d < ndim; d++) {
    if (d == inner || size[d] == 1) continue;
    x.size[x.n] = size[d];
    x.ds[x.n] = ds[d] * es;
    x.ss[x.n++] = ss[d] * es;
    count *= size[d];
  }
  amp__parallel(amp__threads(count * x.run), count, 1, rows_part, &x);
  return true;
}

/* -- Copies ------------------------------------------------------------------------ */

/* Class through which a value of dtype s reaches dtype d: exact, rounded once at the end */
static int through(int d, int s)
{
  if (d == AMP_BOOL) return AMP_C_U8;
  int k = amp__dtype_class[s];
  if (amp__is_half(d) && (s == AMP_INT64 || s == AMP_INT32)) return AMP_C_F64;
  if (d == AMP_FLOAT64 && k == AMP_C_I64) return AMP_C_F64;
  if (d == AMP_FLOAT32 && k == AMP_C_I64) return AMP_C_F32;
  if (amp__is_half(d) && k == AMP_C_I64) return AMP_C_F32;
  return k;
}

void amp__copy_raw(int ndim, const int64_t *size, void *dst, int ddtype, const int64_t *dstride,
                   const void *src, int sdtype, const int64_t *sstride)
{
  static const amp_loop l = { NULL, NULL, 1, 0, 1 };
  amp_operand op[2];
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= size[d];
  if (n == 0) return;
  if (ddtype == sdtype) {
    int es = amp__dtype_size[ddtype];
    if (ndim > 1 || sstride[0] < 0) {
      if (copy_rows(ndim, size, dst, dstride, src, sstride, es) || transpose(ndim, size, dst, dstride, src, sstride, es)) return;
    }
  }
  op[0].p = dst; op[1].p = (char *)src;
  op[0].dtype = (uint8_t)ddtype; op[1].dtype = (uint8_t)sdtype;
  op[0].cls = op[1].cls = (uint8_t)through(ddtype, sdtype);
  for (int d = 0; d < ndim; d++) { op[0].stride[d] = dstride[d]; op[1].stride[d] = sstride[d]; }
  amp__iterate(&l, ndim, size, 2, op);
}

static int misfit(double v, int dtype)
{
  if (isnan(v)) return amp__fail(AMP_E_VALUE, "NaN can't be cast to %s", amp_dtype_name(dtype));
  return amp__fail(AMP_E_VALUE, "the value %.9g can't be cast to %s: it is out of range", v, amp_dtype_name(dtype));
}

typedef struct { int dtype, cls; int found; double value; } check_arg;
static void check_loop(int64_t n, void *const *p, unsigned scalar, const void *arg)
{
  check_arg *k = (check_arg *)arg;
  int64_t i = amp__first_misfit(k->dtype, k->cls, p[0], n);
  if (amp_likely(i == n) || __atomic_exchange_n(&k->found, 1, __ATOMIC_RELAXED)) return;
  k->value = k->cls == AMP_C_F32 ? (double)((const float *)p[0])[i] : ((const double *)p[0])[i];
}

int amp__check_cast(const amp_tensor *t, int dtype)
{
  if (!amp__is_float(t->dtype) || !amp__is_int(dtype)) return 0;
  check_arg k = { dtype, amp__dtype_class[t->dtype], 0, 0 };
  uint8_t cls = (uint8_t)k.cls;
  amp_loop l = { check_loop, &k, 0, 0, 1 };
  amp_tensor *u = (amp_tensor *)t;
  amp__elementwise(&l, 1, &u, &cls);
  return k.found ? misfit(k.value, dtype) : 0;
}

int amp__copy_to(amp_tensor *dst, const amp_tensor *src)
{
  amp_operand o;
  int rc = amp__check_cast(src, dst->dtype);
  if (rc < 0 || dst->numel == 0) return rc;
  if (dst->dtype == src->dtype && dst->numel == src->numel
      && ((dst->flags & src->flags & AMP_T_CONTIGUOUS)
          || ((dst->flags & src->flags & AMP_T_DENSE) && amp__same_size(dst, src)
              && memcmp(dst->stride, src->stride, sizeof(int64_t) * dst->ndim) == 0))) {
    int es = amp__dtype_size[dst->dtype];
    if (dst->numel <= 65536) { memmove(amp__data(dst), amp__data(src), (size_t)(dst->numel * es)); return 0; }
    int64_t one = 1;
    amp__copy_raw(1, &dst->numel, amp__data(dst), dst->dtype, &one, amp__data(src), src->dtype, &one);
    return 0;
  }
  amp__operand(&o, src, 0, dst->ndim, dst->size);
  amp__copy_raw(dst->ndim, dst->size, amp__data(dst), dst->dtype, dst->stride, o.p, src->dtype, o.stride);
  return 0;
}

amp_tensor *amp__dense(amp_tensor *t, int dtype)
{
  if (t->dtype == dtype && (t->flags & AMP_T_CONTIGUOUS)) { amp__retain(t); return t; }
  amp_tensor *d = amp__tensor_make(dtype, AMP_CPU, 0, t->ndim, t->size);
  if (d && amp__copy_to(d, t) < 0) { amp__free(d); return NULL; }
  return d;
}

int amp__cpu_copy(amp_call *c) { return amp__copy_to(c->out[0], c->in[1]); }
int amp__cpu_clone(amp_call *c) { return amp__copy_to(c->out[0], c->in[0]); }
int amp__cpu_cast(amp_call *c) { return amp__copy_to(c->out[0], c->in[0]); }
int amp__cpu_to_device(amp_call *c) { return amp__copy_to(c->out[0], c->in[0]); }

/* -- Filling ------------------------------------------------------------------------ */

int amp__fill_value(amp_tensor *t, double v)
{
  char value[8] __attribute__((aligned(8)));
  int64_t zero[AMP_MAX_DIM] = { 0 }, one = 1;
  if (amp__is_int(t->dtype)) {
    if (!amp__fits(v, t->dtype)) return misfit(v, t->dtype);
    int64_t i = (int64_t)v;
    amp__store(t->dtype, value, 1, AMP_C_I64, &i, 1);
  } else amp__store(t->dtype, value, 1, AMP_C_F64, &v, 1);
  if (t->flags & AMP_T_DENSE) {
    uint64_t bits = 0;
    memcpy(&bits, value, amp__dtype_size[t->dtype]);
    if (bits == 0 && t->numel <= 65536) memset(amp__data(t), 0, (size_t)t->numel * amp__dtype_size[t->dtype]);
    else amp__copy_raw(1, &t->numel, amp__data(t), t->dtype, &one, value, t->dtype, zero);
  } else amp__copy_raw(t->ndim, t->size, amp__data(t), t->dtype, t->stride, value, t->dtype, zero);
  return 0;
}

int amp__cpu_fill(amp_call *c) { return amp__fill_value(c->out[0], c->a[0].f); }

/* -- Rearranging ---------------------------------------------------------------------- */

int amp__cpu_flip(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  amp_tensor *o = c->out[0];
  int64_t stride[AMP_MAX_DIM];
  if (o->numel == 0) return 0;
  char *p = amp__data(t);
  for (int d = 0; d < t->ndim; d++) stride[d] = t->stride[d];
  for (int i = 0; i < c->a[0].i; i++) {
    int d = (int)c->a[1 + i].i;
    p += (t->size[d] - 1) * t->stride[d] * amp__dtype_size[t->dtype];
    stride[d] = -t->stride[d];
  }
  amp__copy_raw(o->ndim, o->size, amp__data(o), o->dtype, o->stride, p, t->dtype, stride);
  return 0;
}

int amp__cpu_cat(amp_call *c)
{
  amp_tensor *o = c->out[0];
  int dim = (int)c->a[0].i, rc;
  char *p = amp__data(o);
  for (int i = 0; i < c->nin; i++)
    if ((rc = amp__check_cast(c->in[i], o->dtype)) < 0) return rc;
  for (int i = 0; i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t->ndim != o->ndim || t->numel == 0) continue; /* an empty vector joins anything */
    amp__copy_raw(t->ndim, t->size, p, o->dtype, o->stride, amp__data(t), t->dtype, t->stride);
    p += t->size[dim] * o->stride[dim] * amp__dtype_size[o->dtype];
  }
  return 0;
}

/* Copy, then zero each row of each matrix on one side of the diagonal */
static int triangle(amp_call *c, bool lower)
{
  amp_tensor *o = c->out[0];
  int rc = o == c->in[0] ? 0 : amp__copy_to(o, c->in[0]);
  if (rc < 0 || o->numel == 0) return rc;
  int nd = o->ndim, es = amp__dtype_size[o->dtype];
  int64_t rows = o->size[nd - 2], cols = o->size[nd - 1], k = c->a[0].i, matrices = o->numel / (rows * cols);
  int64_t cs = o->stride[nd - 1], zero = 0;
  for (int64_t m = 0; m < matrices; m++) {
    char *p = amp__data(o);
    int64_t at = m;
    for (int d = nd - 3; d >= 0; d--) { p += at % o->size[d] * o->stride[d] * es; at /= o->size[d]; }
    for (int64_t i = 0; i < rows; i++, p += o->stride[nd - 2] * es) {
      /* column of the first element above the diagonal; k may be anything */
      int64_t edge = k >= cols ? cols : k < -rows ? 0 : i + k + (lower ? 1 : 0);
      edge = edge < 0 ? 0 : edge > cols ? cols : edge;
      if (lower) amp__move(es, p + edge * cs * es, cs, &zero, 0, cols - edge);
      else amp__move(es, p, cs, &zero, 0, edge);
    }
  }
  return 0;
}
int amp__cpu_tril(amp_call *c) { return triangle(c, true); }
int amp__cpu_triu(amp_call *c) { return triangle(c, false); }

/* -- Strided windows -------------------------------------------------------------------- */

/* in[0] as if in C order, with the elements of a strided view replaced */
int amp__cpu_as_strided_scatter(amp_call *c)
{
  amp_tensor *o = c->out[0];
  const amp_tensor *s = c->in[1];
  int64_t stride[AMP_MAX_DIM];
  int rc = amp__copy_to(o, c->in[0]);
  if (rc < 0 || (rc = amp__check_cast(s, o->dtype)) < 0) return rc;
  for (int d = 0; d < s->ndim; d++) stride[d] = c->a[10 + d].i;
  amp__copy_raw(s->ndim, s->size, (char *)amp__data(o) + c->a[18].i * amp__dtype_size[o->dtype], o->dtype, stride,
                amp__data(s), s->dtype, s->stride);
  return 0;
}

/* May two places of the view be one element? No, if each stride is beyond the reach of the smaller ones. */
static bool overlaps(int n, const int64_t *size, const int64_t *stride)
{
  int64_t reach = 0;
  bool done[AMP_MAX_DIM] = { false };
  for (int k = 0; k < n; k++) {
    int least = -1;
    for (int d = 0; d < n; d++)
      if (!done[d] && (least < 0 || stride[d] < stride[least])) least = d;
    done[least] = true;
    if (size[least] == 1) continue;
    if (stride[least] <= reach) return true;
    reach += (size[least] - 1) * stride[least];
  }
  return false;
}

/* zeros + in at the places of a strided view; where places coincide, summed in float32 at least */
int amp__cpu_as_strided_sum(amp_call *c)
{
  amp_tensor *o = c->out[0];
  const amp_tensor *t = c->in[0];
  int64_t stride[AMP_MAX_DIM], offset = c->a[27].i;
  int rc;
  for (int d = 0; d < t->ndim; d++) stride[d] = c->a[19 + d].i;
  if (t->numel == 0 || !overlaps(t->ndim, t->size, stride)) {
    if ((rc = amp__fill_value(o, 0)) < 0 || t->numel == 0) return rc;
    amp__copy_raw(t->ndim, t->size, (char *)amp__data(o) + offset * amp__dtype_size[o->dtype], o->dtype, stride,
                  amp__data(t), t->dtype, t->stride);
    return 0;
  }
  int wide = o->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *acc = o->dtype == wide ? o : amp__tensor_make(wide, AMP_CPU, 0, o->ndim, o->size);
  amp_tensor *src = acc ? amp__dense((amp_tensor *)t, wide) : NULL;
  rc = src ? amp__fill_value(acc, 0) : amp__S->err.code;
  if (rc == 0) {
    int64_t at[AMP_MAX_DIM] = { 0 }, p = offset;
    float *f = AMP_DATA(float, acc);
    double *g = AMP_DATA(double, acc);
    for (int64_t i = 0; i < t->numel; i++) {
      if (wide == AMP_FLOAT32) f[p] += AMP_DATA(float, src)[i];
      else g[p] += AMP_DATA(double, src)[i];
      for (int d = t->ndim - 1; d >= 0; d--) {
        p += stride[d];
        if (++at[d] < t->size[d]) break;
        p -= at[d] * stride[d];
        at[d] = 0;
      }
    }
    if (acc != o) rc = amp__copy_to(o, acc);
  }
  if (acc != o) amp__free(acc);
  amp__free(src);
  return rc;
}
