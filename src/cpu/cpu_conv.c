/*
** cpu_conv.c: rows convolution, convolution_input and convolution_weight, as
** products of matrices whose column side is read from the image while it is
** packed.
**
** The gradient in the input is a convolution of the gradient with the turned
** weight: for a stride of s it falls apart into as many such convolutions as
** the strides multiply to, one for each phase of the output, each with the
** taps that reach it. No column matrix is ever stored, whatever the layout:
** N x C x ... and channels-last are strides. Other layouts are copied to the
** first one, 16-bit data is widened first and rounded once. Planes (data that
** are not channels-last) of float32 and less are first offered to the direct
** kernels, which need no packing at all (cpu_conv_direct.c, cpu_conv_sums.c).
*/
#include "cpu_conv.h"

/* One convolution of an image by a matrix weight[rows][k] into out */
typedef struct pass {
  conv_image im;
  const char *weight; int64_t rows, k;
  char *out; int64_t on, oc, op;       /* strides: image, row, pixel */
  const char *bias;
} pass;

/* -- Sizes and strides as of five dimensions ----------------------------------------- */

/* Spatial dimensions that are missing come before those there are and have one element. */
static void widen_size(int64_t *three, const amp_tensor *t) {
  int spatial = t->ndim - 2;
  for (int i = 0; i < 3; i++) three[i] = i < 3 - spatial ? 1 : t->size[2 + i - (3 - spatial)];
}

void conv_widen(int64_t *five, const int64_t *stride, const amp_tensor *t) {
  int spatial = t->ndim - 2;
  five[0] = stride[0];
  five[1] = stride[1];
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - spatial);
    five[2 + i] = d >= 0 ? stride[2 + d] : stride[2] * t->size[2];
  }
}

static void setup(conv *v, const amp_slot *a, const amp_tensor *x, const amp_tensor *w, const amp_tensor *y) {
  v->spatial = x->ndim - 2;
  for (int i = 0; i < 3; i++) {
    v->s[i] = a[i].i;
    v->p[i] = a[3 + i].i;
    v->d[i] = a[6 + i].i;
    if (i < 3 - v->spatial) { v->s[i] = v->d[i] = 1; v->p[i] = 0; }
  }
  v->groups = a[9].i;
  v->n = x->size[0]; v->c = x->size[1];
  v->oc = w->size[0]; v->cg = w->size[1];
  widen_size(v->in, x);
  widen_size(v->k, w);
  widen_size(v->out, y);
  v->og = v->oc / v->groups;
  v->size = amp__dtype_size[v->type];
}

static int64_t product(const int64_t *three) { return three[0] * three[1] * three[2]; }

/* Does one stride walk all pixels of a plane? Then that stride, else 0. */
static int64_t pixel_stride(const int64_t *size, const int64_t *stride) {
  int64_t pixel = 0, next = 0;
  bool set = false; /* a stride may be 0: no step at all, as good as none */
  for (int i = 2; i >= 0; i--) {
    if (size[i] == 1) continue;
    if (!set) pixel = stride[i];
    else if (stride[i] != next) return 0;
    next = stride[i] * size[i];
    set = true;
  }
  return set ? pixel : 1;
}
static int64_t pixels_of(const amp_tensor *t) {
  int64_t five[5], size[3];
  conv_widen(five, t->stride, t);
  widen_size(size, t);
  return pixel_stride(size, five + 2);
}
static bool read_planes(amp__nn_view *v, const amp_tensor *t, int type) {
  return pixels_of(t) ? amp__nn_read(v, t, type) : amp__nn_read_c(v, t, type);
}
static bool write_planes(amp__nn_view *v, const amp_tensor *t, int type) {
  return pixels_of(t) ? amp__nn_write(v, t, type) : amp__nn_write_c(v, t, type);
}

/* Of a product's operations a core does some 32 in the time of a simple one. */
static int threads_for(double flop) { return flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32)); }

/* -- A pass: units of pixels, each a product on one thread ------------------------ */

typedef struct units {
  const pass *p; int type, size;
  int64_t spans, span, cuts;           /* stretches of pixels with one stride; each in cuts */
  char *scratch; size_t each;
} units;

/* 1 x 1 without stride: the image is the column matrix. Its pixel stride, else 0. */
static int64_t is_matrix(const conv_image *m) {
  const int64_t size[3] = {m->d, m->h, m->w}, stride[3] = {m->xd, m->xh, m->xw};
  bool one = m->ntap == 1 && m->tap[0].d == 0 && m->tap[0].h == 0 && m->tap[0].w == 0;
  if (!one || m->sd != 1 || m->sh != 1 || m->sw != 1 || m->od != m->d || m->oh != m->h || m->ow != m->w) return 0;
  return pixel_stride(size, stride);
}

static amp_gemm unit_gemm(const units *u, int64_t span, int64_t first, int64_t pixels) {
  const pass *p = u->p;
  const conv_image *m = &p->im;
  int64_t plane = m->od * m->oh * m->ow, xp = is_matrix(m);
  amp_gemm g = {.m = p->rows, .n = pixels, .k = p->k, .a = p->weight, .ars = p->k, .acs = 1, .crs = p->oc, .ccs = p->op};
  g.c = p->out + (span * p->on + first * p->op) * u->size;
  if (xp && (u->spans > 1 || m->xn == plane * xp || u->span == plane)) {
    g.b = (const char *)m->x + (span * m->xn + first * xp) * u->size;
    g.brs = m->xc;
    g.bcs = xp;
  } else {
    g.b = m;
    g.pack_b = u->type == AMP_FLOAT64 ? conv_pack_cols_f64 : conv_pack_cols_f32;
    g.first_b = (u->spans > 1 ? span * plane : 0) + first;
  }
  if (p->bias) { g.bias = p->bias; g.bias_rs = 1; }
  return g;
}

static void unit_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const units *u = ctx;
  int64_t blocks = (u->span + 31) / 32;
  for (int64_t i = begin; i < end; i++) {
    int64_t span = i / u->cuts, cut = i % u->cuts;
    int64_t p0 = blocks * cut / u->cuts * 32, p1 = blocks * (cut + 1) / u->cuts * 32;
    if (p1 > u->span) p1 = u->span;
    if (p0 >= p1) continue;
    amp_gemm g = unit_gemm(u, span, p0, p1 - p0);
    amp__gemm(&g, u->type, u->scratch + (size_t)thread * u->each);
  }
}

static int run_pass(const pass *p, int64_t images, int type) {
  char small[32 << 10] __attribute__((aligned(64)));
  int64_t plane = p->im.od * p->im.oh * p->im.ow;
  units u = {.p = p, .type = type, .size = amp__dtype_size[type]};
  bool joined = p->on == plane * p->op;  /* channels-last: all images' pixels in one line */
  u.spans = joined ? 1 : images;
  u.span = joined ? images * plane : plane;
  int threads = threads_for(2.0 * (double)p->rows * (double)p->k * (double)(images * plane));
  u.cuts = (threads + u.spans - 1) / u.spans;
  if (u.cuts > 1 && u.spans > 1) u.cuts = threads;
  threads = threads < u.spans * u.cuts ? threads : (int)(u.spans * u.cuts);
  amp_gemm g = unit_gemm(&u, 0, 0, (u.span + u.cuts - 1) / u.cuts + 32);
  u.each = (amp__gemm_scratch(&g, type) + 255) / 256 * 256;
  amp__nn_scratch s;
  if (!amp__nn_lend(&s, small, sizeof small, u.each * (size_t)threads)) return AMP_E_MEMORY;
  u.scratch = s.p;
  amp__nn_par(threads, u.spans * u.cuts, unit_body, &u);
  amp__nn_give(&s);
  return 0;
}

/* -- Weights as matrices ------------------------------------------------------------ */

/* dst[r][c, t] (or [r][t, c] with inside) = src[r * rs + c * cs + off[t]] */
static void weight_matrix(char *dst, const char *src, int size, int64_t rows, int64_t rs, int64_t c, int64_t cs, int64_t nt,
                          const int64_t *off, bool inside) {
  int64_t k = c * nt, ci = 0, t = 0;
  for (int64_t i = 0; i < k; i++) {
    const char *s = src + (ci * cs + off[t]) * size;
    char *d = dst + i * size;
    if (size == 4) for (int64_t r = 0; r < rows; r++) memcpy(d + r * k * 4, s + r * rs * 4, 4);
    else for (int64_t r = 0; r < rows; r++) memcpy(d + r * k * 8, s + r * rs * 8, 8);
    if (inside) { if (++ci == c) { ci = 0; t++; } }
    else if (++t == nt) { t = 0; ci++; }
  }
}

static bool in_order(const conv *v, bool inside) { /* is the weight the matrix already? */
  const int64_t *ws = v->ws, *k = v->k;
  int64_t taps = product(k), pixel = inside ? v->cg : 1;
  bool row = v->oc == 1 || ws[0] == v->cg * taps, c = v->cg == 1 || ws[1] == (inside ? 1 : taps);
  return row && c && (k[0] == 1 || ws[2] == k[1] * k[2] * pixel) && (k[1] == 1 || ws[3] == k[2] * pixel) && (k[2] == 1 || ws[4] == pixel);
}

/* All taps, and where each stands in the weight */
static void all_taps(const conv *v, conv_tap *tap, int64_t *off) {
  for (int64_t h = 0, t = 0; h < v->k[0]; h++)
    for (int64_t i = 0; i < v->k[1]; i++)
      for (int64_t j = 0; j < v->k[2]; j++, t++) {
        tap[t] = (conv_tap){(int32_t)(h * v->d[0] - v->p[0]), (int32_t)(i * v->d[1] - v->p[1]), (int32_t)(j * v->d[2] - v->p[2])};
        off[t] = h * v->ws[2] + i * v->ws[3] + j * v->ws[4];
      }
}

static void image_of(const conv *v, conv_image *m, const conv_tap *tap) {
  *m = (conv_image){.x = v->x.p, .xn = v->xs[0], .xc = v->xs[1], .xd = v->xs[2], .xh = v->xs[3], .xw = v->xs[4],
                    .c = v->cg, .d = v->in[0], .h = v->in[1], .w = v->in[2], .od = v->out[0], .oh = v->out[1], .ow = v->out[2],
                    .sd = v->s[0], .sh = v->s[1], .sw = v->s[2], .ntap = product(v->k), .tap = tap};
  m->channels_inside = v->xs[1] == 1 && v->cg > 1;
}

/* Memory for taps, their offsets in the weight, and a weight matrix */
typedef struct tables { amp__nn_scratch s; conv_tap *tap; int64_t *off; char *matrix; char own[16 << 10]; } tables;
static bool make_tables(tables *t, const conv *v, int64_t matrix_elems) {
  size_t nt = (size_t)product(v->k), head = (nt * (sizeof(conv_tap) + sizeof(int64_t)) + 63) / 64 * 64;
  if (!amp__nn_lend(&t->s, t->own, sizeof t->own, head + (size_t)matrix_elems * v->size + 64)) return false;
  t->off = t->s.p;
  t->tap = (conv_tap *)(t->off + nt);
  t->matrix = (char *)t->s.p + head;
  return true;
}

static void fill_view(const amp__nn_view *v, const amp_tensor *t, int type, const amp__nn_view *bias) { /* with 0, or a value a channel */
  if (!bias && (v->block || (t->flags & AMP_T_DENSE))) { memset(v->p, 0, (size_t)t->numel * amp__dtype_size[type]); return; }
  amp__nn_walk w;
  const int64_t *st[1] = {v->stride};
  amp__nn_walk_init(&w, t->ndim, t->size, 1u << 1, 1, st);
  amp__nn_pos p;
  amp__nn_seek(&w, &p, 0);
  for (int64_t i = 0; i < w.n; i++, amp__nn_next(&w, &p))
    for (int64_t c = 0; c < t->size[1]; c++) {
      int64_t at = p.off[0] + c * v->stride[1];
      if (type == AMP_FLOAT64) ((double *)v->p)[at] = bias ? ((const double *)bias->p)[c] : 0;
      else ((float *)v->p)[at] = bias ? ((const float *)bias->p)[c] : 0;
    }
}

static void drop(conv *v, tables *t) {
  amp__nn_give(&t->s);
  amp__nn_drop(&v->x); amp__nn_drop(&v->wt); amp__nn_drop(&v->y); amp__nn_drop(&v->b);
}

/* -- Directly ------------------------------------------------------------------------------ */

/* May planes of t be read (or written) by rows? Channels-last data go the other way. */
static bool by_rows(const amp_tensor *t, const conv *v) { return v->type == AMP_FLOAT32 && (t->size[1] == 1 || t->stride[1] != 1); }

static void raw(conv_direct *d, const amp_tensor *src, const int64_t *ss, const amp_tensor *dst, const int64_t *ds) {
  d->src = amp__data(src); d->sdtype = src->dtype; d->sn = ss[0]; d->sc = ss[1];
  d->dst = amp__data(dst); d->ddtype = dst->dtype; d->dn = ds[0]; d->dc = ds[1];
  for (int i = 0; i < 3; i++) { d->ss[i] = ss[2 + i]; d->ds[i] = ds[2 + i]; }
}

/* The output from the input, or (sums) the gradient in the weight from both: 0, an error, or 1 (nothing done) */
static int forward_direct(conv *v, tables *t, const amp_tensor *x, const amp_tensor *o, bool sums) {
  int64_t xs[5], ys[5], taps = product(v->k);
  conv_direct d = {.images = v->n, .groups = v->groups, .channels = v->cg, .rows = v->og, .taps = taps, .tap = t->tap, .weight = v->wt.p,
                   .wg = v->og * v->ws[0], .wr = v->ws[0], .wc = v->ws[1], .woff = t->off, .bias = v->b.p};
  conv_widen(xs, x->stride, x);
  conv_widen(ys, o->stride, o);
  raw(&d, x, xs, o, ys);
  for (int i = 0; i < 3; i++) { d.in[i] = v->in[i]; d.out[i] = v->out[i]; d.step[i] = v->s[i]; }
  bool one = taps == 1 && x->dtype == AMP_FLOAT32 && v->s[0] * v->s[1] * v->s[2] == 1; /* the image is the column matrix */
  int threads = threads_for(2.0 * (double)o->numel * (double)(v->cg * taps));
  return one ? 1 : sums ? conv_direct_sums(&d, v->wt.p, threads) : conv_direct_run(&d, threads);
}

/* -- convolution -------------------------------------------------------------------------- */

int amp__cpu_convolution(amp_call *call) {
  amp_tensor *x = call->in[0], *w = call->in[1], *b = amp__nn_arg(call, 2), *o = call->out[0];
  conv v = {.type = amp__nn_type(o->dtype)};
  tables t = {0};
  int rc = AMP_E_MEMORY;
  setup(&v, call->a, x, w, o);
  if (o->numel == 0) return 0;
  int64_t nt = product(v.k), k = v.cg * nt;
  if (!amp__nn_read(&v.wt, w, v.type) || (b && !amp__nn_read_c(&v.b, b, v.type)) || !make_tables(&t, &v, v.og * k)) goto out;
  conv_widen(v.ws, v.wt.stride, w);
  all_taps(&v, t.tap, t.off);
  if (v.cg > 0 && by_rows(x, &v) && (rc = forward_direct(&v, &t, x, o, false)) != 1) goto out;
  if (conv_depthwise_fits(&v)) {
    drop(&v, &t);
    return conv_depthwise(&v, x, w, b, o, 0);
  }
  rc = AMP_E_MEMORY;
  if (!amp__nn_read(&v.x, x, v.type) || !write_planes(&v.y, o, v.type)) goto out;
  conv_widen(v.xs, v.x.stride, x);
  conv_widen(v.ys, v.y.stride, o);
  pass p = {.rows = v.og, .k = k, .on = v.ys[0], .oc = v.ys[1], .op = pixel_stride(v.out, v.ys + 2)};
  image_of(&v, &p.im, t.tap);
  bool direct = in_order(&v, p.im.channels_inside);
  rc = 0;
  for (int64_t g = 0; g < v.groups && rc == 0; g++) {
    p.weight = (const char *)v.wt.p + g * v.og * v.ws[0] * v.size;
    p.im.x = (const char *)v.x.p + g * v.cg * v.xs[1] * v.size;
    p.out = (char *)v.y.p + g * v.og * v.ys[1] * v.size;
    p.bias = b ? (const char *)v.b.p + g * v.og * v.size : NULL;
    if (!direct) {
      weight_matrix(t.matrix, p.weight, v.size, v.og, v.ws[0], v.cg, v.ws[1], nt, t.off, p.im.channels_inside);
      p.weight = t.matrix;
    }
    rc = run_pass(&p, v.n, v.type);
  }
  if (rc == 0) amp__nn_written(&v.y, o, v.type);
out:
  drop(&v, &t);
  return rc;
}

/* -- convolution_input: grad, weight -> input's gradient ------------------------------------------ */

typedef struct scatter { const char *src; char *dst; int64_t c, size[3], dn, dc, step[3]; int bytes; } scatter;

static void scatter_body(void *ctx, int64_t begin, int64_t end, int thread) { /* planes of a phase to their places */
  const scatter *s = ctx;
  int64_t lines = s->size[0] * s->size[1], w = s->size[2], dw = s->step[2];
  for (int64_t i = begin; i < end; i++)
    for (int64_t y = 0; y < lines; y++) {
      const char *from = s->src + (i * lines + y) * w * s->bytes;
      char *to = s->dst + (i / s->c * s->dn + i % s->c * s->dc + y / s->size[1] * s->step[0] + y % s->size[1] * s->step[1]) * s->bytes;
      if (s->bytes == 4) for (int64_t x = 0; x < w; x++) ((float *)to)[x * dw] = ((const float *)from)[x];
      else for (int64_t x = 0; x < w; x++) ((double *)to)[x * dw] = ((const double *)from)[x];
    }
}

static int64_t floor_mod(int64_t a, int64_t b) { int64_t r = a % b; return r < 0 ? r + b : r; }

/* Taps that reach places of phase `at`, with their places in grad and in the weight */
static int64_t phase_taps(const conv *v, const int64_t *at, conv_tap *tap, int64_t *off) {
  int64_t n = 0, t[3];
  for (int64_t h = 0; h < v->k[0]; h++) {
    if (floor_mod(t[0] = at[0] + v->p[0] - h * v->d[0], v->s[0])) continue;
    for (int64_t i = 0; i < v->k[1]; i++) {
      if (floor_mod(t[1] = at[1] + v->p[1] - i * v->d[1], v->s[1])) continue;
      for (int64_t j = 0; j < v->k[2]; j++) {
        if (floor_mod(t[2] = at[2] + v->p[2] - j * v->d[2], v->s[2])) continue;
        tap[n] = (conv_tap){(int32_t)(t[0] / v->s[0]), (int32_t)(t[1] / v->s[1]), (int32_t)(t[2] / v->s[2])};
        off[n++] = h * v->ws[2] + i * v->ws[3] + j * v->ws[4];
      }
    }
  }
  return n;
}

/* The part of the result at places `at`, at + stride, ...; phase: memory for it if there is a stride */
static int one_phase(const conv *v, const amp_tensor *o, const int64_t *at, tables *t, char *phase) {
  int64_t nt = phase_taps(v, at, t->tap, t->off), n[3], plane;
  int rc = 0;
  for (int i = 0; i < 3; i++) n[i] = (v->in[i] - at[i] + v->s[i] - 1) / v->s[i];
  plane = product(n);
  if (nt == 0) return 0;
  pass p = {.rows = v->cg, .k = v->og * nt, .on = v->xs[0], .oc = v->xs[1], .op = pixel_stride(v->in, v->xs + 2)};
  if (phase) { p.on = v->cg * plane; p.oc = plane; p.op = 1; }
  p.im = (conv_image){.xn = v->ys[0], .xc = v->ys[1], .xd = v->ys[2], .xh = v->ys[3], .xw = v->ys[4], .c = v->og, .d = v->out[0],
                      .h = v->out[1], .w = v->out[2], .od = n[0], .oh = n[1], .ow = n[2], .sd = 1, .sh = 1, .sw = 1, .ntap = nt,
                      .tap = t->tap, .channels_inside = v->ys[1] == 1 && v->og > 1};
  for (int64_t g = 0; g < v->groups && rc == 0; g++) {
    char *dst = (char *)v->x.p + (g * v->cg * v->xs[1] + at[0] * v->xs[2] + at[1] * v->xs[3] + at[2] * v->xs[4]) * v->size;
    p.im.x = (const char *)v->y.p + g * v->og * v->ys[1] * v->size;
    p.out = phase ? phase : dst;
    p.bias = v->b.p ? (const char *)v->b.p + g * v->cg * v->size : NULL;
    weight_matrix(t->matrix, (const char *)v->wt.p + g * v->og * v->ws[0] * v->size, v->size, v->cg, v->ws[1], v->og, v->ws[0], nt,
                  t->off, p.im.channels_inside);
    p.weight = t->matrix;
    rc = run_pass(&p, v->n, v->type);
    if (rc || !phase) continue;
    scatter s = {phase, dst, v->cg, {n[0], n[1], n[2]}, v->xs[0], v->xs[1], {v->s[0] * v->xs[2], v->s[1] * v->xs[3], v->s[2] * v->xs[4]}, v->size};
    amp__nn_par(amp__nn_threads(v->n * v->cg * plane, v->n * v->cg), v->n * v->cg, scatter_body, &s);
  }
  return rc;
}

/* The same without another layout of the data: 0, an error, or 1 (nothing done) */
static int phase_direct(const conv *v, const amp_tensor *gy, const amp_tensor *o, const int64_t *at, tables *t) {
  int64_t xs[5], ys[5];
  conv_direct d = {.images = v->n, .groups = v->groups, .channels = v->og, .rows = v->cg, .tap = t->tap, .weight = v->wt.p,
                   .wg = v->og * v->ws[0], .wr = v->ws[1], .wc = v->ws[0], .woff = t->off, .bias = v->b.p, .step = {1, 1, 1}};
  d.taps = phase_taps(v, at, t->tap, t->off);
  conv_widen(xs, o->stride, o);
  conv_widen(ys, gy->stride, gy);
  raw(&d, gy, ys, o, xs);
  double flop = 2.0 * (double)(v->n * v->c * v->og * d.taps);
  for (int i = 0; i < 3; i++) {
    d.in[i] = v->out[i];
    d.out[i] = (v->in[i] - at[i] + v->s[i] - 1) / v->s[i];
    d.ds[i] = v->s[i] * xs[2 + i];
    d.dst = (char *)d.dst + at[i] * xs[2 + i] * amp__dtype_size[o->dtype];
    flop *= (double)d.out[i];
  }
  return conv_direct_run(&d, threads_for(flop));
}

/* Are there places of a phase that no tap reaches? */
static bool has_gaps(const conv *v) {
  for (int i = 0; i < 3; i++)
    for (int64_t a = 0; a < v->s[i] && a < v->in[i]; a++) {
      bool reached = false;
      for (int64_t j = 0; j < v->k[i] && !reached; j++) reached = floor_mod(a + v->p[i] - j * v->d[i], v->s[i]) == 0;
      if (!reached) return true;
    }
  return false;
}

int amp__cpu_convolution_input(amp_call *call) {
  amp_tensor *gy = call->in[0], *w = call->in[1], *b = amp__nn_arg(call, 2), *o = call->out[0];
  conv v = {.type = amp__nn_type(o->dtype)};
  tables t = {0};
  amp_block *phase = NULL;
  int rc = AMP_E_MEMORY;
  setup(&v, call->a + 9, o, w, gy);
  if (o->numel == 0) return 0;
  int64_t phases = v.s[0] * v.s[1] * v.s[2], most = 1, at[3];
  bool gaps = gy->numel == 0 || has_gaps(&v), one = product(v.k) == 1 && phases == 1 && o->dtype == AMP_FLOAT32;
  if (!amp__nn_read(&v.wt, w, v.type) || (b && !amp__nn_read_c(&v.b, b, v.type)) || !make_tables(&t, &v, v.og * v.cg * product(v.k))) goto out;
  conv_widen(v.ws, v.wt.stride, w);
  rc = 1;
  if (!gaps && !one && by_rows(gy, &v)) {
    rc = 0;
    for (at[0] = 0; at[0] < v.s[0] && at[0] < v.in[0] && rc == 0; at[0]++)
      for (at[1] = 0; at[1] < v.s[1] && at[1] < v.in[1] && rc == 0; at[1]++)
        for (at[2] = 0; at[2] < v.s[2] && at[2] < v.in[2] && rc == 0; at[2]++) rc = phase_direct(&v, gy, o, at, &t);
  }
  if (rc != 1) goto out;
  if (gy->numel > 0 && conv_depthwise_fits(&v)) {
    drop(&v, &t);
    return conv_depthwise(&v, o, w, b, gy, 1);
  }
  rc = AMP_E_MEMORY;
  if (!amp__nn_read(&v.y, gy, v.type) || !(phases > 1 ? amp__nn_write(&v.x, o, v.type) : write_planes(&v.x, o, v.type))) goto out;
  conv_widen(v.xs, v.x.stride, o);
  conv_widen(v.ys, v.y.stride, gy);
  if (gaps) fill_view(&v.x, o, v.type, b ? &v.b : NULL);
  if (phases > 1) {
    for (int i = 0; i < 3; i++) most *= (v.in[i] + v.s[i] - 1) / v.s[i];
    phase = amp__block_new(AMP_CPU, 0, (size_t)(v.n * v.cg * most) * v.size + 64);
    if (!phase) goto out;
  }
  rc = 0;
  if (gy->numel > 0)
    for (at[0] = 0; at[0] < v.s[0] && at[0] < v.in[0]; at[0]++)
      for (at[1] = 0; at[1] < v.s[1] && at[1] < v.in[1]; at[1]++)
        for (at[2] = 0; at[2] < v.s[2] && at[2] < v.in[2] && rc == 0; at[2]++) rc = one_phase(&v, o, at, &t, phase ? phase->data : NULL);
  if (rc == 0) amp__nn_written(&v.x, o, v.type);
out:
  if (phase) amp__block_free(phase);
  drop(&v, &t);
  return rc;
}

/* -- convolution_weight: grad, input -> weight's gradient ----------------------------------------- */

int amp__cpu_convolution_weight(amp_call *call) {
  amp_tensor *gy = call->in[0], *x = call->in[1], *o = call->out[0];
  conv v = {.type = amp__nn_type(o->dtype)};
  tables t = {0};
  int rc = AMP_E_MEMORY;
  setup(&v, call->a + 9, x, o, gy);
  if (o->numel == 0) return 0;
  int64_t nt = product(v.k), k = v.cg * nt, plane = product(v.out);
  if (!amp__nn_write(&v.wt, o, v.type) || !make_tables(&t, &v, v.og * k)) goto out;
  conv_widen(v.ws, v.wt.stride, o);
  all_taps(&v, t.tap, t.off);
  rc = 0;
  bool none = gy->numel == 0 || x->numel == 0;
  if (none) fill_view(&v.wt, o, v.type, NULL);
  if (none || (by_rows(x, &v) && by_rows(gy, &v) && (rc = forward_direct(&v, &t, x, gy, true)) != 1)) {
    if (rc == 0) amp__nn_written(&v.wt, o, v.type);
    goto out;
  }
  if (conv_depthwise_fits(&v)) {
    drop(&v, &t);
    return conv_depthwise(&v, x, o, NULL, gy, 2);
  }
  rc = AMP_E_MEMORY;
  if (!amp__nn_read(&v.x, x, v.type) || !read_planes(&v.y, gy, v.type)) goto out;
  conv_widen(v.xs, v.x.stride, x);
  conv_widen(v.ys, v.y.stride, gy);
  int64_t yp = pixel_stride(v.out, v.ys + 2);
  rc = 0;
  conv_image m;
  image_of(&v, &m, t.tap);
  conv_planes planes = {.pn = v.ys[0], .pc = v.ys[1], .pp = yp, .pixels = plane};
  bool f64 = v.type == AMP_FLOAT64, direct = in_order(&v, m.channels_inside);
  int threads = threads_for(2.0 * (double)v.og * (double)k * (double)(v.n * plane));
  for (int64_t g = 0; g < v.groups && rc == 0; g++) {
    amp_gemm q = {.m = v.og, .n = k, .k = v.n * plane, .crs = k, .ccs = 1};
    char *dst = (char *)v.wt.p + g * v.og * v.ws[0] * v.size;
    m.x = (const char *)v.x.p + g * v.cg * v.xs[1] * v.size;
    planes.p = (const char *)v.y.p + g * v.og * v.ys[1] * v.size;
    q.c = direct ? dst : t.matrix;
    if (v.n == 1 || planes.pn == plane * yp) { q.a = planes.p; q.ars = planes.pc; q.acs = yp; }
    else { q.a = &planes; q.pack_a = f64 ? conv_pack_planes_f64 : conv_pack_planes_f32; }
    q.b = &m;
    q.pack_b = f64 ? conv_pack_rows_f64 : conv_pack_rows_f32;
    rc = amp__gemm_threads(&q, v.type, threads);
    if (direct) continue;
    for (int64_t r = 0; r < v.og; r++)
      for (int64_t i = 0; i < k; i++) {
        int64_t c = m.channels_inside ? i % v.cg : i / nt, tap = m.channels_inside ? i / v.cg : i % nt;
        memcpy(dst + (r * v.ws[0] + c * v.ws[1] + t.off[tap]) * v.size, t.matrix + (r * k + i) * v.size, (size_t)v.size);
      }
  }
  if (rc == 0) amp__nn_written(&v.wt, o, v.type);
out:
  drop(&v, &t);
  return rc;
}
