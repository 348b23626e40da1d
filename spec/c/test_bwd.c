/*
** test_bwd.c: derivatives against finite differences, in float64, up to the
** third order, for every case of test_bwd_cases.h.
**
** With L0 = sum(f(x) R0) for fixed numbers R, and L(k+1) = sum over the inputs
** of (gradient of Lk) R(k+1), the gradient of Lk that the engine gives has to
** be what central differences of Lk give. Each case also runs without a graph
** of the derivative, with inputs whose strides are reversed, and in lower
** precision, where gradients must have their leaf's dtype and stay close, and
** with memory failing at every allocation in turn.
** At the end every derivative of the table must have been reached.
*/
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "check.h"
#include "autograd/derivative.h"
#include "test_bwd_elsewhere.h"

enum { NONE = INT32_MIN, MAX_ARGS = 6, MAX_NUMEL = 96, ORDERS = 3 };

static amp_state *S;

/* -- Words of the cases ---------------------------------------------------------- */

static void list_slots(amp_attrs *s, const char *text, int most)
{
  amp_slot *count = &s->v[s->n];
  int n = 0;
  amp__attrs_int(s, AMP_NONE);
  for (char *p = (char *)text; p && *p; p += *p == 'x', n++) amp__attrs_int(s, strtoll(p, &p, 10));
  if (text) count->i = n;
  for (; n < most; n++) amp__attrs_int(s, 0);
}

/* Slots by the op's schema: int for i, b, d, t, v, e (N of them for iN), double for f, "2x3" or NULL for I, D. */
static amp_attrs slots(int op, va_list ap)
{
  amp_attrs s = amp__attrs();
  for (const char *p = amp__ops[op].info.schema; *p;) {
    const char *e = p + strcspn(p, " "), *colon = memchr(p, ':', (size_t)(e - p));
    if (colon) {
      char type = colon[1];
      int many = atoi(colon + 2);
      if (type == 'I' || type == 'D') list_slots(&s, va_arg(ap, const char *), many ? many : AMP_MAX_DIM);
      else if (type == 'f') {
        double v = va_arg(ap, double);
        if (v == v) amp__attrs_float(&s, v);
        else amp__attrs_int(&s, AMP_NONE);
      } else
        for (int n = type == 'i' && many ? many : 1; n > 0; n--) {
          int v = va_arg(ap, int);
          amp__attrs_int(&s, v == NONE ? AMP_NONE : v);
        }
    }
    p = *e ? e + 1 : e;
  }
  return s;
}

static amp_tensor *op(int id, amp_tensor **in, int n, ...)
{
  va_list ap;
  va_start(ap, n);
  amp_attrs s = slots(id, ap);
  va_end(ap);
  return amp__op(id, &s, n, in);
}

#define T(...) (amp_tensor *[]){ __VA_ARGS__ }, (int)(sizeof((amp_tensor *[]){ __VA_ARGS__ }) / sizeof(amp_tensor *))
#define O(name, ...) op(AMP_OP_##name, __VA_ARGS__)
#define X3(name, a, b, c) amp__op(AMP_OP_##name, NULL, 3, (amp_tensor *[]){ a, b, c })

/* Nothing linear, so that there is a second derivative. */
static amp_tensor *sq(amp_tensor *t) { return OP2(mul, t, OP_NUMBER(add, t, 0.3)); }

static amp_tensor *in_place(int id, amp_tensor **in, int n, const amp_attrs *s)
{
  amp_tensor *y = in[0] = sq(in[0]);
  if (!y) return NULL;
  return amp__dispatch(id, AMP_INPLACE, in, n, NULL, s->v) < 0 ? NULL : sq(y);
}

/* op_(x^2 + .3 x, other), squared again */
static amp_tensor *inplace(int id, amp_tensor *x, amp_tensor *other, ...)
{
  va_list ap;
  va_start(ap, other);
  amp_attrs s = slots(id, ap);
  va_end(ap);
  amp_tensor *in[2] = { x, other };
  return in_place(id, in, other ? 2 : 1, &s);
}

static amp_tensor *inplace2(int id, amp_tensor *x, amp_tensor *a, amp_tensor *b, int dim)
{
  amp_attrs s = amp__attrs();
  amp__attrs_int(&s, dim);
  amp_tensor *in[3] = { x, a, b };
  return in_place(id, in, 3, &s);
}

/* A column of a copy of x overwritten through a view */
static amp_tensor *written_column(amp_tensor *x, amp_tensor *v)
{
  amp_tensor *y = sq(x), *in[2] = { y ? O(select, T(y), 2, 2) : NULL, v };
  if (!in[0] || amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL) < 0) return NULL;
  return sq(y);
}

/* Slices of a dimension of size 3, each put to another use; one is left out */
static amp_tensor *unbound(amp_tensor *x, int dim, bool all)
{
  amp_tensor *y[AMP_MAX_OUT] = { NULL };
  amp_attrs s = amp__attrs();
  amp__attrs_int(&s, dim);
  if (amp__op_results(AMP_OP_unbind, &s, 1, &x, y) < 0) return NULL;
  amp_tensor *z = OP2(mul, y[0], sq(y[2]));
  return all ? OP2(add, z, y[1]) : z;
}

static amp_tensor *seeded_dropout(amp_tensor *x, double p, int training)
{
  S->seed = 7;
  S->rng_offset = 0;
  return sq(O(dropout, T(O(clone, T(x), 1)), p, training)); /* the mask goes by places in memory */
}

/* Values of x at the places where windows of `at` have their maxima, or (`back`) x put there */
static amp_tensor *picked(amp_tensor *x, amp_tensor *at, bool back)
{
  amp_attrs s = amp__attrs(), plane = amp__attrs();
  amp_tensor *out[AMP_MAX_OUT], *in[2] = { x, NULL };
  for (int i = 0; i < 10; i++) amp__attrs_int(&s, i < 4 ? 2 : i == 6 || i == 7 || i == 9);
  if (back) amp__attrs_list(&plane, at->ndim, at->size);
  amp__attrs_int(&plane, 2);
  if (amp__op_results(AMP_OP_max_pool2d, &s, 1, &at, out) < 0) return NULL;
  in[1] = out[1];
  return amp__op(back ? AMP_OP_unpool : AMP_OP_pool_gather, &plane, 2, in);
}

/* -- Cases ------------------------------------------------------------------------- */

#define CASE(name, args, f) \
  static amp_tensor *case_##name(amp_tensor **x) { return f; }
#include "test_bwd_cases.h"
#undef CASE

typedef struct kase {
  const char *name, *args;
  amp_tensor *(*f)(amp_tensor **x);
} kase;
static const kase cases[] = {
#define CASE(name, args, f) { #name, args, case_##name },
#include "test_bwd_cases.h"
#undef CASE
};

typedef struct arg {
  char kind;
  bool diff; /* asks for a gradient */
  int ndim, numel, range;
  int64_t size[AMP_MAX_DIM];
  double v[MAX_NUMEL];
} arg;

static uint32_t seed;
static double uniform(void)
{
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) / 16777216.0;
}

static void fill(arg *a)
{
  for (int i = 0; i < a->numel; i++) {
    double u = uniform(), w = 0.1 + 1.3 * u;
    switch (a->kind) {
    case 'p': a->v[i] = 0.3 + 1.7 * u; break;
    case 'u': a->v[i] = 0.1 + 0.8 * u; break;
    case 'i': a->v[i] = 1 + (int)(u * a->range); break;
    case 'b': a->v[i] = u < 0.5; break;
    case 'd': a->v[i] = (i * 7 % a->numel - a->numel / 2.2) * 0.21; break;
    default: a->v[i] = a->kind == 'z' && i % 3 == 1 ? 0 : uniform() < 0.5 ? -w : w;
    }
  }
}

static int parse(const char *p, arg *args)
{
  int n = 0;
  while (*p) {
    arg *a = &args[n++];
    *a = (arg){ .kind = *p++, .numel = 1 };
    if (a->kind == 'i') a->range = (int)strtol(p, (char **)&p, 10);
    a->diff = a->kind >= 'a' && a->kind != 'i' && a->kind != 'b';
    if (a->kind < 'a') a->kind += 'a' - 'A';
    for (p++; *p && *p != ' '; p += *p == 'x') {
      a->size[a->ndim] = strtoll(p, (char **)&p, 10);
      a->numel *= (int)a->size[a->ndim++];
    }
    CHECK(a->numel <= MAX_NUMEL);
    p += *p == ' ';
    fill(a);
  }
  return n;
}

/* -- Evaluation ---------------------------------------------------------------------- */

enum { REVERSED = 1 };

typedef struct run {
  const kase *k;
  arg *args;
  int n, dtype, flags;
  amp_tensor *leaf[MAX_ARGS], *x[MAX_ARGS];
} run;

/* Values of a with dimensions in reverse order, and back (gradients). */
static void reverse(const arg *a, const double *from, double *to, bool back)
{
  int64_t at[AMP_MAX_DIM] = { 0 };
  for (int i = 0; i < a->numel; i++) {
    int64_t j = 0;
    for (int d = a->ndim - 1; d >= 0; d--) j = j * a->size[d] + at[d];
    if (back) to[i] = from[j];
    else to[j] = from[i];
    for (int d = a->ndim - 1; d >= 0 && ++at[d] == a->size[d]; d--) at[d] = 0;
  }
}

static bool leaves(run *r)
{
  for (int i = 0; i < r->n; i++) {
    arg *a = &r->args[i];
    amp_ref ref = { NULL };
    double v[MAX_NUMEL];
    int64_t size[AMP_MAX_DIM], dims[AMP_MAX_DIM];
    bool turn = (r->flags & REVERSED) && a->ndim > 1;
    int dtype = a->kind == 'i' ? AMP_INT64 : a->kind == 'b' ? AMP_BOOL : r->dtype;
    if (turn) reverse(a, a->v, v, false);
    else memcpy(v, a->v, sizeof v);
    for (int d = 0; d < a->ndim; d++) {
      size[d] = a->size[turn ? a->ndim - 1 - d : d];
      dims[d] = a->ndim - d;
    }
    if (amp_from_double(S, &ref, v, a->ndim, size, dtype) < 0) return false;
    r->leaf[i] = r->x[i] = amp__pooled(ref.t);
    if (a->diff && amp_requires_grad(S, &ref, 1) < 0) return false;
    if (turn) {
      amp_attrs s = amp__attrs();
      amp__attrs_list(&s, a->ndim, dims);
      if ((r->x[i] = amp__op(AMP_OP_permute, &s, 1, &r->leaf[i])) == NULL) return false;
    }
  }
  return true;
}

/* sum(t R) with numbers R that only depend on salt and place */
static amp_tensor *project(amp_tensor *t, uint32_t salt)
{
  double v[512];
  amp_ref ref = { NULL };
  if (!t) return NULL;
  uint32_t keep = seed;
  seed = salt * 2654435761u + 12345;
  for (int64_t i = 0; i < t->numel && i < 512; i++) v[i] = 0.5 + uniform();
  seed = keep;
  if (amp_from_double(S, &ref, v, t->ndim, t->size, t->dtype) < 0) return NULL;
  return amp__op_sum(OP2(mul, t, amp__pooled(ref.t)), -1, NULL, false);
}

/* Gradients of root in the leaves, from the pool; NULL where none came. */
static bool gradients(run *r, amp_tensor *root, amp_tensor **g, int flags)
{
  amp_tensor *in[MAX_ARGS] = { NULL };
  int at[MAX_ARGS], n = 0, rc;
  memset(g, 0, sizeof *g * MAX_ARGS);
  for (int i = 0; i < r->n; i++)
    if (r->args[i].diff) {
      at[n] = i;
      in[n++] = r->leaf[i];
    }
  amp_engine *e = amp_backward_begin(S, &root, NULL, 1, in, n, flags | AMP_B_ALLOW_UNUSED);
  if (!e) return false;
  rc = amp_backward_run(S, e);
  for (int i = 0; i < n && rc == 0; i++) {
    amp_ref ref = { NULL };
    rc = amp_backward_result(S, &ref, e, i);
    if (ref.t) g[at[i]] = amp__pooled(ref.t);
  }
  amp_backward_end(S, e);
  return rc == 0;
}

/* Lk; NULL and *constant where it does not depend on anything any more */
static amp_tensor *build(run *r, int order, bool *constant)
{
  *constant = false;
  amp_tensor *l = project(r->k->f(r->x), 1), *g[MAX_ARGS];
  for (int k = 1; l; k++) {
    if (!amp__tracked(l)) {
      *constant = true;
      return NULL;
    }
    if (k > order) return l;
    if (!gradients(r, l, g, AMP_B_CREATE_GRAPH | AMP_B_RETAIN_GRAPH)) return NULL;
    l = NULL;
    for (int i = 0; i < r->n; i++) {
      if (!g[i] || !amp__tracked(g[i])) continue;
      amp_tensor *t = project(g[i], (uint32_t)(100 * k + i));
      if (!t) return NULL;
      if ((l = l ? OP2(add, l, t) : t) == NULL) return NULL;
    }
    if (!l) {
      *constant = true;
      return NULL;
    }
  }
  return NULL;
}

static bool read(amp_tensor *t, double *v, int64_t n)
{
  amp_ref ref = { t };
  return amp_read(S, &ref, v, n) == 0;
}

/* Lk at the arguments' values. -1: an error, 0: constant, 1 */
static int value(run *r, int order, double *v)
{
  int mark = amp__pool_mark();
  bool constant = false;
  amp_tensor *l = leaves(r) ? build(r, order, &constant) : NULL;
  int rc = l ? read(l, v, 1) ? 1 : -1 : constant ? 0 : -1;
  amp__pool_release(mark);
  return rc;
}

/* Gradients of Lk, in float64 C order of the arguments. */
static int slopes(run *r, int order, int flags, double out[MAX_ARGS][MAX_NUMEL])
{
  int mark = amp__pool_mark(), rc = -1;
  bool constant = false;
  amp_tensor *g[MAX_ARGS], *l = leaves(r) ? build(r, order, &constant) : NULL;
  memset(out, 0, sizeof(double) * MAX_ARGS * MAX_NUMEL);
  if (!l) {
    rc = constant ? 0 : -1;
    goto out;
  }
  if (!gradients(r, l, g, flags)) goto out;
  for (int i = 0; i < r->n; i++) {
    const arg *a = &r->args[i];
    double v[MAX_NUMEL];
    if (!g[i]) continue;
    CHECK(g[i]->dtype == r->dtype);
    CHECK(amp__same_size(g[i], r->leaf[i]));
    if (!read(g[i], v, a->numel)) goto out;
    if ((r->flags & REVERSED) && a->ndim > 1) reverse(a, v, out[i], true);
    else memcpy(out[i], v, sizeof(double) * (size_t)a->numel);
  }
  rc = 1;
out:
  amp__pool_release(mark);
  return rc;
}

/* -- Comparison ------------------------------------------------------------------------- */

static int bad;

static void fault(const run *r, const char *what)
{
  printf("%s: %s: %s: %s\n", r->k->name, what, S->err.op, S->err.message);
  bad++;
  S->err.message[0] = 0;
}

static void compare(const run *r, const char *what, double got[MAX_ARGS][MAX_NUMEL], double want[MAX_ARGS][MAX_NUMEL],
                    double tolerance)
{
  double scale = 1;
  for (int i = 0; i < r->n; i++)
    for (int j = 0; j < r->args[i].numel; j++) scale = fmax(scale, fabs(want[i][j]));
  for (int i = 0; i < r->n; i++)
    for (int j = 0; r->args[i].diff && j < r->args[i].numel; j++) {
      if (fabs(got[i][j] - want[i][j]) <= tolerance * scale) continue;
      printf("%s, %s: argument %d, element %d: %.10g, expected %.10g\n", r->k->name, what, i + 1, j + 1, got[i][j],
             want[i][j]);
      bad++;
      return;
    }
}

static double g1[MAX_ARGS][MAX_NUMEL], g2[MAX_ARGS][MAX_NUMEL];

static void differences(run *r, int order)
{
  const double h = 1e-5;
  memset(g2, 0, sizeof g2);
  for (int i = 0; i < r->n; i++) {
    arg *a = &r->args[i];
    for (int j = 0; a->diff && j < a->numel; j++) {
      double x = a->v[j], up = 0, down = 0;
      a->v[j] = x + h;
      int rc = value(r, order, &up);
      a->v[j] = x - h;
      if (rc >= 0) rc = value(r, order, &down);
      a->v[j] = x;
      if (rc < 0) {
        fault(r, "value");
        return;
      }
      g2[i][j] = (up - down) / (2 * h);
    }
  }
}

/* Every allocation of a second derivative fails in turn: an error each time, then the same result. */
static void starve(run *r)
{
  int rc = -1, n = 1;
  for (; rc < 0 && n < 5000; n++) {
    S->err.code = 0;
    amp_fail_allocation(n);
    rc = slopes(r, 1, 0, g1);
    amp_fail_allocation(-1);
    if (rc < 0 && S->err.code != AMP_E_MEMORY) {
      fault(r, "a failed allocation");
      return;
    }
  }
  if (slopes(r, 1, 0, g2) >= 0) compare(r, "after failed allocations", g1, g2, 0);
}

static void check_case(const kase *k)
{
  arg args[MAX_ARGS];
  char what[64];
  seed = 42;
  run r = { .k = k, .args = args, .n = parse(k->args, args), .dtype = AMP_FLOAT64 };
  for (int order = 0; order < ORDERS; order++) {
    int rc = slopes(&r, order, AMP_B_CREATE_GRAPH, g1);
    bool last = rc < 0 && strstr(S->err.message, "without create_graph") != NULL;
    if (last) rc = slopes(&r, order, 0, g1);
    if (rc < 0) {
      fault(&r, "gradient");
      return;
    }
    differences(&r, order);
    snprintf(what, sizeof what, "derivative %d", order + 1);
    compare(&r, what, g1, g2, 2e-6);
    if (rc == 0 || (last && order > 0)) break;
    if (order > 0) continue;
    if (slopes(&r, 0, 0, g2) < 0) {
      fault(&r, "without graph");
      return;
    }
    compare(&r, "without graph", g2, g1, 1e-12);
    r.flags = REVERSED;
    if (slopes(&r, 0, 0, g2) < 0) {
      fault(&r, "reversed strides");
      return;
    }
    compare(&r, "reversed strides", g2, g1, 1e-12);
    r.flags = 0;
    static const struct {
      int dtype;
      double tolerance;
    } low[] = { { AMP_FLOAT32, 2e-5 }, { AMP_FLOAT16, 2e-2 }, { AMP_BFLOAT16, 1.2e-1 } };
    for (int i = 0; i < 3; i++) {
      r.dtype = low[i].dtype;
      if (slopes(&r, 0, 0, g2) < 0) {
        fault(&r, amp_dtype_name(r.dtype));
        return;
      }
      compare(&r, amp_dtype_name(r.dtype), g2, g1, low[i].tolerance);
    }
    r.dtype = AMP_FLOAT64;
    if (last) return;
  }
  starve(&r);
}

/* -- Points where formulas would give NaN or infinity -------------------------------------- */

static double one_gradient(amp_tensor *(*f)(amp_tensor **x), int n, const double *v, int at)
{
  kase k = { "special point", "", f };
  arg a = { .kind = 'n', .diff = true, .ndim = 1, .numel = n, .size = { n } };
  memcpy(a.v, v, sizeof(double) * (size_t)n);
  run r = { .k = &k, .args = &a, .n = 1, .dtype = AMP_FLOAT64 };
  if (slopes(&r, 0, 0, g1) < 0) {
    fault(&r, "gradient");
    return NAN;
  }
  return g1[0][at];
}
#define POINT(name, f) \
  static amp_tensor *point_##name(amp_tensor **x) { return f; }
POINT(norm, O(norm, T(x[0]), 2.0, NULL, 0, NONE))
POINT(norm_half, O(norm, T(x[0]), 0.5, NULL, 0, NONE))
POINT(std, O(std, T(x[0]), NULL, 1.0, 0))
POINT(logsumexp, O(logsumexp, T(x[0]), NULL, 0))
POINT(abs, OP1(abs, x[0]))
POINT(relu, OP1(relu, x[0]))
POINT(pow_none, OP2(pow, x[0], OP_NUMBER(mul, amp__op_detach(x[0]), 0)))
POINT(amax, O(amax, T(x[0]), NULL, 0))
POINT(max, O(max, T(x[0]), NONE, 0))
POINT(clamp, O(clamp, T(x[0]), -1.0, 1.0))
POINT(bce, O(binary_cross_entropy, T(x[0], OP_NUMBER(add, OP_NUMBER(mul, amp__op_detach(x[0]), 0), 1), NULL), 2))
#undef POINT

static void check_points(void)
{
  const double zeros[3] = { 0, 0, 0 }, ones[3] = { 1, 1, 1 }, lost[2] = { -INFINITY, -INFINITY }, edge[2] = { 1, -1 };
  CHECK(one_gradient(point_norm, 3, zeros, 0) == 0);
  CHECK(one_gradient(point_norm_half, 3, zeros, 1) == 0);
  CHECK(one_gradient(point_std, 3, ones, 0) == 0);
  CHECK(one_gradient(point_logsumexp, 2, lost, 0) == 0);
  CHECK(one_gradient(point_abs, 3, zeros, 2) == 0);
  CHECK(one_gradient(point_relu, 3, zeros, 2) == 0);
  CHECK(one_gradient(point_pow_none, 3, zeros, 2) == 0);
  double third = one_gradient(point_amax, 3, ones, 0);
  CHECK(third > 0 && fabs(g1[0][0] - g1[0][2]) < 1e-15);
  third = one_gradient(point_max, 3, ones, 1);
  CHECK(third > 0 && fabs(g1[0][1] - g1[0][2]) < 1e-15);
  CHECK(one_gradient(point_clamp, 2, edge, 0) == 0 && g1[0][1] == 0); /* at the bounds themselves, as in PyTorch */
  CHECK(one_gradient(point_bce, 1, zeros, 0) < -1e11);
  CHECK(one_gradient(point_bce, 1, ones, 0) == 0);
}

/* -- Coverage -------------------------------------------------------------------------------- */

static amp_bwd_fn real[AMP_OP_COUNT];
static int hits[AMP_OP_COUNT];

static bool is_elsewhere(const char *name)
{
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
    if (strcmp(elsewhere[i], name) == 0) return true;
  return false;
}

static int counted(amp_bwd *b)
{
  hits[b->node->op]++;
  return real[b->node->op](b);
}

int main(int argc, char **argv)
{
  S = amp_state_new();
  CHECK(S != NULL);
  AMP_ENTER(S);
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if ((real[i] = amp__ops[i].bwd) != NULL) amp__ops[i].bwd = counted;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (argc < 2 || strcmp(argv[1], cases[i].name) == 0) check_case(&cases[i]);
  if (argc < 2) {
    check_points();
    for (int i = 0; i < AMP_OP_COUNT; i++)
      if (real[i] && (hits[i] > 0) == is_elsewhere(amp__ops[i].info.name)) {
        printf(hits[i] ? "listed, but reached: %s\n" : "no case reaches the derivative of %s\n", amp__ops[i].info.name);
        bad++;
      }
  }
  CHECK(bad == 0);
  amp_state_free(S);
  return DONE();
}
