/*
** cpu_distance.c: rows cdist and pdist, their backward rows, and renorm.
**
** The second operand's rows are packed side by side, LANE of them a panel, so
** that one row meets LANE others in vectors whatever the number of features is:
**
**   panel[feature][LANE]      dist[j] = sum over features of |x[f] - panel[f][j]|^p
**
** The euclidean distance of many rows is a matrix product, |a|^2 + |b|^2 - 2 a b.
** Where that cancels it is taken anew as it stands, so that near rows have exact
** distances and equal ones have 0. Data is in C order in the computing type.
*/
#include <float.h>
#include "cpu_iter.h"
#include "cpu_rows.h"

enum { LANE = 32, MANY = 25 };   /* MANY: rows above which products are faster */
enum { ZERO, ONE, TWO, MOST, POWER };

static int kind_of(double p) { return p == 0 ? ZERO : p == 1 ? ONE : p == 2 ? TWO : isinf(p) ? MOST : POWER; }

static inline float powabs_f32(float d, float p) {
  float a = fabsf(d), y = amp__powf_core(a > 0.f && a <= FLT_MAX ? a : 1.f, p);
  return a > 0.f && a <= FLT_MAX ? y : a;   /* 0, infinity and NaN stay: p > 0 */
}
static inline double powabs_f64(double d, double p) { return pow(fabs(d), p); }
static inline float abs_f32(float x) { return fabsf(x); }
static inline double abs_f64(double x) { return fabs(x); }

/* -- One row against a panel ----------------------------------------------------------------- */

#define STEP(T, S, name, expr)                                                                      \
  AMP_CLONES_OF(T) static void name##_##S(const T *x, const T *panel, int64_t m, T p, T *out) {     \
    T acc[LANE];                                                                                    \
    (void)p;                                                                                        \
    for (int j = 0; j < LANE; j++) acc[j] = 0;                                                      \
    for (int64_t f = 0; f < m; f++) {                                                               \
      const T v = x[f];                                                                             \
      AMP_IVDEP for (int j = 0; j < LANE; j++) { const T d = v - panel[f * LANE + j], a = acc[j]; acc[j] = expr; } \
    }                                                                                               \
    for (int j = 0; j < LANE; j++) out[j] = acc[j];                                                 \
  }
#define STEPS(T, S)                                                                                 \
  STEP(T, S, zero, a + (d != 0 ? 1 : 0))                                                            \
  STEP(T, S, one, a + abs_##S(d))                                                                   \
  STEP(T, S, two, a + d * d)                                                                        \
  STEP(T, S, most, abs_##S(d) > a || d != d ? abs_##S(d) : a)                                       \
  STEP(T, S, power, a + powabs_##S(d, p))                                                           \
  static void distances_##S(int kind, const T *x, const T *panel, int64_t m, T p, T *out, int64_t from, int64_t n) { \
    T d[LANE];                                                                                      \
    switch (kind) {                                                                                 \
    case ZERO: zero_##S(x, panel, m, p, d); break;                                                  \
    case ONE: one_##S(x, panel, m, p, d); break;                                                    \
    case TWO: two_##S(x, panel, m, p, d); for (int j = 0; j < LANE; j++) d[j] = (T)sqrt(d[j]); break; \
    case MOST: most_##S(x, panel, m, p, d); break;                                                  \
    default: power_##S(x, panel, m, p, d); for (int64_t j = 0; j < LANE; j++) d[j] = (T)pow(d[j], 1 / (double)p); \
    }                                                                                               \
    memcpy(out, d + from, (size_t)(n - from) * sizeof(T));                                          \
  }                                                                                                 \
  /* rows of x as panels; lanes past the last row repeat it */                                      \
  static void pack_##S(T *dst, const T *x, int64_t rows, int64_t m) {                               \
    for (int64_t r = 0; r < rows; r += LANE, dst += m * LANE)                                       \
      for (int64_t j = 0; j < LANE; j++) {                                                          \
        const T *row = x + (r + j < rows ? r + j : rows - 1) * m;                                   \
        for (int64_t f = 0; f < m; f++) dst[f * LANE + j] = row[f];                                 \
      }                                                                                             \
  }                                                                                                 \
  /* gx += q sign(d) |d|^(p-1), d = x - z; y is the distance */                                     \
  AMP_INLINE void pull_##S(int kind, T *restrict gx, const T *restrict x, const T *restrict z, int64_t m, T q, T y, T p) { \
    if (kind == TWO) for (int64_t f = 0; f < m; f++) gx[f] += q * (x[f] - z[f]);                    \
    else if (kind == ONE) for (int64_t f = 0; f < m; f++) { T d = x[f] - z[f]; gx[f] += d > 0 ? q : d < 0 ? -q : d * q; } \
    else if (kind == MOST) {                                                                        \
      int64_t equal = 0;                                                                            \
      for (int64_t f = 0; f < m; f++) equal += abs_##S(x[f] - z[f]) == y;                           \
      q /= (T)(equal ? equal : 1);                                                                  \
      for (int64_t f = 0; f < m; f++) { T d = x[f] - z[f]; gx[f] += abs_##S(d) == y ? (d < 0 ? -q : q) : 0; } \
    } else for (int64_t f = 0; f < m; f++) {                                                        \
      T d = x[f] - z[f], t = d == 0 ? 0 : q * powabs_##S(d, p - 1);                                 \
      gx[f] += d < 0 ? -t : t;                                                                      \
    }                                                                                               \
  }                                                                                                 \
  AMP_INLINE T share_##S(int kind, T g, T y, T p) {  /* what all features of a pair have in common */ \
    if (y == 0 || kind == ZERO) return 0;                                                           \
    return kind == TWO ? g / y : kind == POWER ? (T)(g / pow(y, (double)p - 1)) : g;                \
  }
STEPS(float, f32)
STEPS(double, f64)

/* -- Loops over pairs -------------------------------------------------------------------------- */

typedef struct job {
  int type, kind;
  int64_t p, r, m;              /* rows, rows of the second operand, features */
  const void *x, *z, *panels;   /* z: second operand */
  const void *g, *dist;
  void *out, *other;            /* other: gradient of z */
  double norm;
  const double *n1, *n2;        /* of products: squared norms */
} job;

static int64_t first_pair(int64_t n, int64_t i) { return i * (2 * n - i - 1) / 2; } /* of row i of n with later ones */

#define LOOPS(T, S)                                                                                 \
  static void cdist_##S(const job *k, int64_t begin, int64_t end) {                                 \
    for (int64_t j = 0; j < k->r; j += LANE)                                                        \
      for (int64_t i = begin; i < end; i++)                                                         \
        distances_##S(k->kind, (const T *)k->x + i * k->m, (const T *)k->panels + j * k->m, k->m, (T)k->norm, (T *)k->out + i * k->r + j, \
                      0, k->r - j < LANE ? k->r - j : LANE);                                        \
  }                                                                                                 \
  static void pdist_##S(const job *k, int64_t begin, int64_t end) {                                 \
    for (int64_t i = begin; i < end; i++) {                                                         \
      T *out = (T *)k->out + first_pair(k->r, i);                                                   \
      for (int64_t j = (i + 1) / LANE * LANE; j < k->r; j += LANE) {                                \
        int64_t from = i + 1 > j ? i + 1 - j : 0, n = k->r - j < LANE ? k->r - j : LANE;            \
        if (from >= n) continue;                                                                    \
        distances_##S(k->kind, (const T *)k->x + i * k->m, (const T *)k->panels + j * k->m, k->m, (T)k->norm, out + j + from - i - 1, from, n); \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void cdist_back_##S(const job *k, int64_t begin, int64_t end, bool second) {  \
    const T *x = second ? k->z : k->x, *z = second ? k->x : k->z, *g = k->g, *dist = k->dist;       \
    int64_t others = second ? k->p : k->r;                                                          \
    for (int64_t i = begin; i < end; i++) {                                                         \
      T *gx = (T *)(second ? k->other : k->out) + i * k->m;                                         \
      for (int64_t f = 0; f < k->m; f++) gx[f] = 0;                                                 \
      for (int64_t j = 0; j < others; j++) {                                                        \
        int64_t at = second ? j * k->r + i : i * k->r + j;                                          \
        T q = share_##S(k->kind, g[at], dist[at], (T)k->norm);                                      \
        if (q != 0) pull_##S(k->kind, gx, x + i * k->m, z + j * k->m, k->m, q, dist[at], (T)k->norm); \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void pdist_back_##S(const job *k, int64_t begin, int64_t end) {           \
    const T *x = k->x, *g = k->g, *dist = k->dist;                                                  \
    for (int64_t i = begin; i < end; i++) {                                                         \
      T *gx = (T *)k->out + i * k->m;                                                               \
      for (int64_t f = 0; f < k->m; f++) gx[f] = 0;                                                 \
      for (int64_t j = 0; j < k->r; j++) {                                                          \
        if (i == j) continue;                                                                       \
        int64_t at = i < j ? first_pair(k->r, i) + j - i - 1 : first_pair(k->r, j) + i - j - 1;     \
        T q = share_##S(k->kind, g[at], dist[at], (T)k->norm);                                      \
        if (q != 0) pull_##S(k->kind, gx, x + i * k->m, x + j * k->m, k->m, q, dist[at], (T)k->norm); \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  /* products in out -> distances */                                                                \
  AMP_CLONES_OF(T) static int finish_##S(T *restrict out, int64_t n, T a, const double *restrict b) { \
    int near = 0;                                                                                   \
    for (int64_t j = 0; j < n; j++) {                                                               \
      T sum = a + (T)b[j], d = sum - 2 * out[j];                                                    \
      near |= !(d > (T)0.02 * sum);                                                                 \
      out[j] = d;                                                                                   \
    }                                                                                               \
    return near;                                                                                    \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void root_##S(T *out, int64_t n) {                                        \
    for (int64_t j = 0; j < n; j++) out[j] = sqrt##S(out[j]);                                       \
  }                                                                                                 \
  AMP_CLONES_OF(T) static T direct_##S(const T *x, const T *z, int64_t m) {                         \
    T s = 0;                                                                                        \
    _Pragma("omp simd reduction(+ : s)") for (int64_t f = 0; f < m; f++) { T d = x[f] - z[f]; s += d * d; } \
    return s;                                                                                       \
  }                                                                                                 \
  static void euclid_##S(const job *k, int64_t begin, int64_t end) {                                \
    for (int64_t i = begin; i < end; i++) {                                                         \
      T *out = (T *)k->out + i * k->r;                                                              \
      if (finish_##S(out, k->r, (T)k->n1[i], k->n2))                                                \
        for (int64_t j = 0; j < k->r; j++)                                                          \
          if (!(out[j] > (T)0.02 * ((T)k->n1[i] + (T)k->n2[j])))                                    \
            out[j] = direct_##S((const T *)k->x + i * k->m, (const T *)k->z + j * k->m, k->m);      \
      root_##S(out, k->r);                                                                          \
    }                                                                                               \
  }
#define sqrtf32 sqrtf
#define sqrtf64 sqrt
LOOPS(float, f32)
LOOPS(double, f64)

#define PICK(f, ...) (k->type == AMP_FLOAT64 ? f##_f64(__VA_ARGS__) : f##_f32(__VA_ARGS__))
static void cdist_body(void *ctx, int64_t b, int64_t e, int thread) { const job *k = ctx; PICK(cdist, k, b, e); }
static void pdist_body(void *ctx, int64_t b, int64_t e, int thread) { const job *k = ctx; PICK(pdist, k, b, e); }
static void euclid_body(void *ctx, int64_t b, int64_t e, int thread) { const job *k = ctx; PICK(euclid, k, b, e); }
static void first_body(void *ctx, int64_t b, int64_t e, int thread) { const job *k = ctx; PICK(cdist_back, k, b, e, false); }
static void second_body(void *ctx, int64_t b, int64_t e, int thread) { const job *k = ctx; PICK(cdist_back, k, b, e, true); }
static void pdist_back_body(void *ctx, int64_t b, int64_t e, int thread) { const job *k = ctx; PICK(pdist_back, k, b, e); }

static void pack(const job *k, void *dst) {
  PICK(pack, dst, k->z, k->r, k->m);
}

static double square_of(const job *k, const void *x, int64_t row) {
  double s = 0;
  for (int64_t f = 0; f < k->m; f += 2048) { /* in double: what is subtracted from must be right */
    int64_t n = k->m - f < 2048 ? k->m - f : 2048;
    s += k->type == AMP_FLOAT64 ? amp__row_dev_f64((const double *)x + row * k->m + f, 0, n) : amp__row_dev_f32((const float *)x + row * k->m + f, 0, n);
  }
  return s;
}

/* -- Operands ------------------------------------------------------------------------------------ */

/* Offsets (in matrices) of the second-last dimensions' operands for each batch element */
static amp__nn_walk batches(const amp_tensor *out, const amp_tensor *x, const amp_tensor *z) {
  amp__nn_walk w;
  int64_t sx[AMP_MAX_DIM], sz[AMP_MAX_DIM], so[AMP_MAX_DIM], nx = 1, nz = 1, no = 1;
  const int64_t *strides[3] = { sx, sz, so };
  int nd = out->ndim - 2;
  for (int d = nd - 1; d >= 0; d--) {
    int i = d - (out->ndim - x->ndim), j = d - (out->ndim - z->ndim);
    int64_t a = i < 0 ? 1 : x->size[i], b = j < 0 ? 1 : z->size[j];
    sx[d] = a == 1 ? 0 : nx;
    sz[d] = b == 1 ? 0 : nz;
    so[d] = no;
    nx *= a; nz *= b; no *= out->size[d];
  }
  amp__nn_walk_init(&w, nd, out->size, 0, 3, strides);
  return w;
}

static const void *matrix(const amp_tensor *t, int64_t i) {
  return (const char *)amp__data(t) + i * t->size[t->ndim - 2] * t->size[t->ndim - 1] * amp__dtype_size[t->dtype];
}

/* a tensor to fill: out itself, or one in the computing type */
static amp_tensor *target(amp_tensor *out, int type) {
  if (out->dtype == type && (out->flags & AMP_T_CONTIGUOUS)) { amp__retain(out); return out; }
  return amp__tensor_make(type, AMP_CPU, 0, out->ndim, out->size);
}

static int give(amp_tensor *out, const amp_tensor *t) { return t == out ? 0 : amp__copy_to(out, t); }

/* x z^T of all batches, by the row matmul, which a plug-in may have taken over */
static amp_tensor *products(amp_tensor *x, amp_tensor *z) {
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  memcpy(size, z->size, sizeof size);
  memcpy(stride, z->stride, sizeof stride);
  int n = z->ndim;
  size[n - 1] = z->size[n - 2]; size[n - 2] = z->size[n - 1];
  stride[n - 1] = z->stride[n - 2]; stride[n - 2] = z->stride[n - 1];
  amp_tensor *zt = amp__tensor_view(z, n, size, stride, z->offset), *in[2] = { x, zt }, *out[AMP_MAX_OUT] = { NULL };
  int32_t grad_mode = amp__S->grad_mode, autocast_on = amp__S->autocast_on;
  if (!zt) return NULL;
  amp__S->grad_mode = amp__S->autocast_on = 0;
  int rc = amp__dispatch(AMP_OP_matmul, 0, in, 2, out, NULL);
  amp__S->grad_mode = grad_mode;
  amp__S->autocast_on = autocast_on;
  amp__free(zt);
  return rc < 0 ? NULL : out[0];
}

/* -- cdist ------------------------------------------------------------------------------------------ */

int amp__cpu_cdist(amp_call *c) { /* p compute_mode */
  amp_tensor *out = c->out[0], *x, *z, *y = NULL;
  job k = {.type = amp__nn_type(out->dtype), .kind = kind_of(c->a[0].f), .norm = c->a[0].f};
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  if (out->numel == 0) return 0;
  x = amp__dense(c->in[0], k.type);
  z = amp__dense(c->in[1], k.type);
  if (!x || !z) goto out;
  k.p = x->size[x->ndim - 2]; k.r = z->size[z->ndim - 2]; k.m = x->size[x->ndim - 1];
  if (k.m == 0) { rc = amp__fill_value(out, 0); goto out; }
  bool many = k.kind == TWO && (c->a[1].i == 1 || (c->a[1].i == 0 && (k.p > MANY || k.r > MANY)));
  if (!(y = many ? products(x, z) : target(out, k.type))) goto out;
  amp__nn_walk w = batches(out, x, z);
  amp__nn_pos at;
  int64_t panels = (k.r + LANE - 1) / LANE * LANE * k.m * amp__dtype_size[k.type];
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)(many ? (k.p + k.r) * (int64_t)sizeof(double) : panels))) goto out;
  amp__nn_seek(&w, &at, 0);
  const void *packed = NULL;
  for (int64_t i = 0; i < w.n; i++, amp__nn_next(&w, &at)) {
    k.x = matrix(x, at.off[0]);
    k.z = matrix(z, at.off[1]);
    k.out = (void *)matrix(y, at.off[2]);
    if (many) {
      double *n1 = s.p, *n2 = n1 + k.p;
      for (int64_t j = 0; j < k.p; j++) n1[j] = square_of(&k, k.x, j);
      for (int64_t j = 0; j < k.r; j++) n2[j] = square_of(&k, k.z, j);
      k.n1 = n1;
      k.n2 = n2;
    } else if (packed != k.z) {
      pack(&k, s.p);
      packed = k.z;
    }
    k.panels = s.p;
    amp__nn_par(amp__nn_threads(many ? k.p * k.r : k.p * k.r * k.m, k.p), k.p, many ? euclid_body : cdist_body, &k);
  }
  rc = give(out, y);
out:
  amp__nn_give(&s);
  amp__free(x); amp__free(z); amp__free(y);
  return rc;
}

int amp__cpu_cdist_backward(amp_call *c) { /* grad x1 x2 dist; p */
  amp_tensor *t[4] = {NULL}, *y = NULL, *yz = NULL;
  job k = {.type = amp__nn_type(c->in[1]->dtype), .kind = kind_of(c->a[0].f), .norm = c->a[0].f};
  int rc = AMP_E_MEMORY;
  for (int i = 0; i < 4; i++) if (!(t[i] = amp__dense(c->in[i], k.type))) goto out;
  if (!(y = target(c->out[0], k.type)) || !(yz = target(c->out[1], k.type))) goto out;
  int n = t[1]->ndim;
  k.p = t[1]->size[n - 2]; k.r = t[2]->size[n - 2]; k.m = t[1]->size[n - 1];
  int64_t batch = 1;
  for (int d = 0; d < n - 2; d++) batch *= t[1]->size[d];
  for (int64_t i = 0; i < batch; i++) {
    k.g = matrix(t[0], i); k.x = matrix(t[1], i); k.z = matrix(t[2], i); k.dist = matrix(t[3], i);
    k.out = (void *)matrix(y, i); k.other = (void *)matrix(yz, i);
    amp__nn_par(amp__nn_threads(k.p * k.r * k.m, k.p), k.p, first_body, &k);
    amp__nn_par(amp__nn_threads(k.p * k.r * k.m, k.r), k.r, second_body, &k);
  }
  rc = give(c->out[0], y);
  if (rc == 0) rc = give(c->out[1], yz);
out:
  for (int i = 0; i < 4; i++) amp__free(t[i]);
  amp__free(y); amp__free(yz);
  return rc;
}

/* -- pdist -------------------------------------------------------------------------------------------- */

int amp__cpu_pdist(amp_call *c) {
  amp_tensor *out = c->out[0], *x, *y = NULL;
  job k = {.type = amp__nn_type(out->dtype), .kind = kind_of(c->a[0].f), .norm = c->a[0].f};
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  if (out->numel == 0) return 0;
  x = amp__dense(c->in[0], k.type);
  if (!x) goto out;
  k.p = k.r = x->size[0];
  k.m = x->size[1];
  if (k.m == 0) { rc = amp__fill_value(out, 0); goto out; }
  k.x = k.z = amp__data(x);
  if (!(y = target(out, k.type)) || !amp__nn_lend(&s, own, sizeof own, (size_t)((k.r + LANE - 1) / LANE * LANE * k.m * amp__dtype_size[k.type]))) goto out;
  k.out = amp__data(y);
  pack(&k, s.p);
  k.panels = s.p;
  amp__nn_par(amp__nn_threads(k.p * k.r / 2 * k.m, k.p), k.p, pdist_body, &k);
  rc = give(out, y);
out:
  amp__nn_give(&s);
  amp__free(x); amp__free(y);
  return rc;
}

int amp__cpu_pdist_backward(amp_call *c) { /* grad input dist; p */
  amp_tensor *t[3] = {NULL}, *y = NULL;
  job k = {.type = amp__nn_type(c->in[1]->dtype), .kind = kind_of(c->a[0].f), .norm = c->a[0].f};
  int rc = AMP_E_MEMORY;
  for (int i = 0; i < 3; i++) if (!(t[i] = amp__dense(c->in[i], k.type))) goto out;
  if (!(y = target(c->out[0], k.type))) goto out;
  k.p = k.r = t[1]->size[0];
  k.m = t[1]->size[1];
  k.g = amp__data(t[0]); k.x = amp__data(t[1]); k.dist = amp__data(t[2]); k.out = amp__data(y);
  amp__nn_par(amp__nn_threads(k.p * k.r * k.m, k.p), k.p, pdist_back_body, &k);
  rc = give(c->out[0], y);
out:
  for (int i = 0; i < 3; i++) amp__free(t[i]);
  amp__free(y);
  return rc;
}

/* -- renorm: each slice of a dimension times maxnorm / (its norm + 1e-7) if that is above maxnorm -------- */

int amp__cpu_renorm(amp_call *c) { /* p dim maxnorm */
  amp_tensor *x = c->in[0], *out[AMP_MAX_OUT] = {NULL}, *in[2] = {x, NULL};
  const amp_op_desc *d = &amp__ops[AMP_OP_lp_norm];
  amp_slot a[AMP_MAX_SLOT];
  int32_t grad_mode = amp__S->grad_mode, autocast_on = amp__S->autocast_on;
  int type = amp__nn_type(x->dtype), n = 0;
  if (x->numel == 0) return 0;
  memcpy(a, d->defaults, sizeof(amp_slot) * (size_t)d->info.nslot);
  a[0].f = c->a[0].f;
  for (int i = 0; i < x->ndim; i++) if (i != c->a[1].i) a[2 + n++].i = i + 1;
  a[1].i = n;
  a[10].i = 1;
  a[11].i = type;
  amp__S->grad_mode = amp__S->autocast_on = 0;
  int rc = amp__dispatch(AMP_OP_lp_norm, 0, in, 1, out, a);
  if (rc == 0) {
    amp_tensor *norm = out[0], *result[AMP_MAX_OUT] = {c->out[0]};
    for (int64_t i = 0; i < norm->numel; i++) {
      double v = type == AMP_FLOAT64 ? AMP_DATA(double, norm)[i] : AMP_DATA(float, norm)[i];
      double f = v > c->a[2].f ? c->a[2].f / (v + 1e-7) : 1;
      if (type == AMP_FLOAT64) AMP_DATA(double, norm)[i] = f;
      else AMP_DATA(float, norm)[i] = (float)f;
    }
    in[1] = norm;
    rc = amp__dispatch(AMP_OP_mul, AMP_OUT, in, 2, result, NULL);
  }
  amp__S->grad_mode = grad_mode;
  amp__S->autocast_on = autocast_on;
  amp__free(out[0]);
  return rc;
}
