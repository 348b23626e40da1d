/*
** cpu_conv.c: rows conv2d, conv2d_input and conv2d_weight, as products of
** matrices whose column side is read from the image while it is packed.
**
** The gradient in the input is a convolution of the gradient with the turned
** weight: for a stride of s it falls apart into s * s such convolutions, one
** for each phase of the output's rows and columns, each with the taps that
** reach it. No column matrix is ever stored, whatever the layout: NCHW and
** channels-last are strides. Other layouts are copied to NCHW first, 16-bit
** data is widened first and rounded once.
*/
#include "cpu_conv.h"

typedef struct conv {
  int type, size;              /* computing dtype, its bytes */
  int64_t n, c, h, w, oc, kh, kw, oh, ow, groups, cg, og;
  int64_t sh, sw, ph, pw, dh, dw;
  amp__nn_view x, wt, y, b;    /* input, weight, output, bias */
} conv;

/* One convolution of an image by a matrix weight[rows][k] into out */
typedef struct pass {
  conv_image im;
  const char *weight; int64_t rows, k;
  char *out; int64_t on, oc, op;       /* strides: image, row, pixel */
  const char *bias;
} pass;

static void geometry(conv *v, const amp_slot *a) { /* stride padding dilation groups */
  v->sh = a[0].i; v->sw = a[1].i;
  v->ph = a[2].i; v->pw = a[3].i;
  v->dh = a[4].i; v->dw = a[5].i;
  v->groups = a[6].i;
}

static void sizes(conv *v, const int64_t *x, const int64_t *w, const int64_t *y) {
  v->n = x[0]; v->c = x[1]; v->h = x[2]; v->w = x[3];
  v->oc = w[0]; v->cg = w[1]; v->kh = w[2]; v->kw = w[3];
  v->oh = y[2]; v->ow = y[3];
  v->og = v->groups ? v->oc / v->groups : 0;
  v->size = amp__dtype_size[v->type];
}

/* Rows of pixels must follow each other: one stride walks a plane. */
static bool walkable(const amp_tensor *t) {
  return t->size[2] == 1 || t->size[3] == 1 || t->stride[2] == t->size[3] * t->stride[3] ? true : false;
}
static int64_t pixel_stride(const amp__nn_view *v, const int64_t *size) { return size[3] == 1 && size[2] > 1 ? v->stride[2] : v->stride[3]; }
static bool read_planes(amp__nn_view *v, const amp_tensor *t, int type) {
  return walkable(t) ? amp__nn_read(v, t, type) : amp__nn_read_c(v, t, type);
}
static bool write_planes(amp__nn_view *v, const amp_tensor *t, int type) {
  return walkable(t) ? amp__nn_write(v, t, type) : amp__nn_write_c(v, t, type);
}

/* Of a product's operations a core does some 32 in the time of a simple one. */
static int threads_for(double flop) { return flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32)); }

/* -- A pass: units of pixels, each a product on one thread ------------------------ */

typedef struct units {
  const pass *p; int type, size;
  int64_t spans, span, cuts;           /* stretches of pixels with one stride; each in cuts */
  char *scratch; size_t each;
} units;

static amp_gemm unit_gemm(const units *u, int64_t span, int64_t first, int64_t pixels) {
  const pass *p = u->p;
  int64_t plane = p->im.oh * p->im.ow;
  amp_gemm g = {.m = p->rows, .n = pixels, .k = p->k, .a = p->weight, .ars = p->k, .acs = 1, .crs = p->oc, .ccs = p->op};
  g.c = p->out + (span * p->on + first * p->op) * u->size;
  g.b = &p->im;
  g.pack_b = u->type == AMP_FLOAT64 ? conv_pack_cols_f64 : conv_pack_cols_f32;
  g.first_b = (u->spans > 1 ? span * plane : 0) + first;
  const conv_image *m = &p->im;
  int64_t xp = m->ow == 1 ? m->xh : m->xw;
  if (m->ntap == 1 && m->tap[0].h == 0 && m->tap[0].w == 0 && m->sh == 1 && m->sw == 1 && m->oh == m->h && m->ow == m->w &&
      (m->h == 1 || m->w == 1 || m->xh == m->w * m->xw) && (u->spans > 1 || m->xn == plane * xp || u->span == plane)) {
    g.pack_b = NULL;                     /* 1 x 1: the image is the column matrix */
    g.b = (const char *)m->x + (span * m->xn + first * xp) * u->size;
    g.brs = m->xc;
    g.bcs = xp;
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
  int64_t plane = p->im.oh * p->im.ow;
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
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < c * nt; i++) {
      int64_t ci = inside ? i % c : i / nt, t = inside ? i / c : i % nt;
      const char *s = src + (r * rs + ci * cs + off[t]) * size;
      char *d = dst + (r * c * nt + i) * size;
      if (size == 4) memcpy(d, s, 4);
      else memcpy(d, s, 8);
    }
}

static bool in_order(const int64_t *ws, const conv *v, bool inside) { /* is the weight the matrix already? */
  int64_t k = v->cg * v->kh * v->kw;
  bool row = v->oc == 1 || ws[0] == k, c, h, w;
  if (inside) {
    c = v->cg == 1 || ws[1] == 1;
    h = v->kh == 1 || ws[2] == v->kw * v->cg;
    w = v->kw == 1 || ws[3] == v->cg;
  } else {
    c = v->cg == 1 || ws[1] == v->kh * v->kw;
    h = v->kh == 1 || ws[2] == v->kw;
    w = v->kw == 1 || ws[3] == 1;
  }
  return row && c && h && w;
}

static void all_taps(const conv *v, conv_tap *tap) {
  for (int64_t i = 0, t = 0; i < v->kh; i++)
    for (int64_t j = 0; j < v->kw; j++, t++)
      tap[t] = (conv_tap){(int32_t)(i * v->dh - v->ph), (int32_t)(j * v->dw - v->pw)};
}

static void image_of(const conv *v, conv_image *m, const conv_tap *tap) {
  *m = (conv_image){.x = v->x.p, .xn = v->x.stride[0], .xc = v->x.stride[1], .xh = v->x.stride[2], .xw = v->x.stride[3],
                    .c = v->cg, .h = v->h, .w = v->w, .oh = v->oh, .ow = v->ow, .sh = v->sh, .sw = v->sw,
                    .ntap = v->kh * v->kw, .tap = tap};
  m->channels_inside = v->x.stride[1] == 1 && v->cg > 1;
}

/* Memory for taps, their offsets in the weight, and a weight matrix */
typedef struct tables { amp__nn_scratch s; conv_tap *tap; int64_t *off; char *matrix; char own[16 << 10]; } tables;
static bool make_tables(tables *t, const conv *v, int64_t matrix_elems) {
  size_t nt = (size_t)(v->kh * v->kw), head = (nt * (sizeof(conv_tap) + sizeof(int64_t)) + 63) / 64 * 64;
  if (!amp__nn_lend(&t->s, t->own, sizeof t->own, head + (size_t)matrix_elems * v->size + 64)) return false;
  t->off = t->s.p;
  t->tap = (conv_tap *)(t->off + nt);
  t->matrix = (char *)t->s.p + head;
  return true;
}

static void zero_view(const amp__nn_view *v, const amp_tensor *t, int type) {
  if (v->block || (t->flags & AMP_T_DENSE)) { memset(v->p, 0, (size_t)t->numel * amp__dtype_size[type]); return; }
  amp__nn_walk w;
  const int64_t *st[1] = {v->stride};
  amp__nn_walk_init(&w, t->ndim, t->size, 0, 1, st);
  amp__nn_pos p;
  amp__nn_seek(&w, &p, 0);
  for (int64_t i = 0; i < w.n; i++, amp__nn_next(&w, &p)) memset((char *)v->p + p.off[0] * amp__dtype_size[type], 0, amp__dtype_size[type]);
}

/* -- conv2d ------------------------------------------------------------------------------ */

int amp__cpu_conv2d(amp_call *call) {
  amp_tensor *x = call->in[0], *w = call->in[1], *b = call->nin > 2 ? call->in[2] : NULL, *o = call->out[0];
  conv v = {.type = amp__nn_type(o->dtype)};
  tables t = {0};
  int rc = AMP_E_MEMORY;
  geometry(&v, call->a);
  sizes(&v, x->size, w->size, o->size);
  if (o->numel == 0) return 0;
  if (v.cg == 1 && v.og == 1 && v.groups > 1) return amp__conv_depthwise(call, 0);
  if (!amp__nn_read(&v.x, x, v.type) || !amp__nn_read(&v.wt, w, v.type) || (b && !amp__nn_read_c(&v.b, b, v.type)) ||
      !write_planes(&v.y, o, v.type)) goto out;
  int64_t nt = v.kh * v.kw, k = v.cg * nt;
  if (!make_tables(&t, &v, v.og * k)) goto out;
  all_taps(&v, t.tap);
  for (int64_t i = 0; i < nt; i++) t.off[i] = i / v.kw * v.wt.stride[2] + i % v.kw * v.wt.stride[3];
  pass p = {.rows = v.og, .k = k, .on = v.y.stride[0], .oc = v.y.stride[1], .op = pixel_stride(&v.y, o->size)};
  image_of(&v, &p.im, t.tap);
  rc = 0;
  for (int64_t g = 0; g < v.groups && rc == 0; g++) {
    const char *wg = (const char *)v.wt.p + g * v.og * v.wt.stride[0] * v.size;
    p.im.x = (const char *)v.x.p + g * v.cg * v.x.stride[1] * v.size;
    p.out = (char *)v.y.p + g * v.og * v.y.stride[1] * v.size;
    p.bias = b ? (const char *)v.b.p + g * v.og * v.size : NULL;
    p.weight = wg;
    if (!in_order(v.wt.stride, &v, p.im.channels_inside)) {
      weight_matrix(t.matrix, wg, v.size, v.og, v.wt.stride[0], v.cg, v.wt.stride[1], nt, t.off, p.im.channels_inside);
      p.weight = t.matrix;
    }
    rc = run_pass(&p, v.n, v.type);
  }
  if (rc == 0) amp__nn_written(&v.y, o, v.type);
out:
  amp__nn_give(&t.s);
  amp__nn_drop(&v.x); amp__nn_drop(&v.wt); amp__nn_drop(&v.y); amp__nn_drop(&v.b);
  return rc;
}

/* -- conv2d_input: grad, weight -> input's gradient ------------------------------------------ */

typedef struct scatter { const char *src; char *dst; int64_t c, n, h, w, dn, dc, dh, dw; int size; } scatter;

static void scatter_body(void *ctx, int64_t begin, int64_t end, int thread) { /* planes of a phase to their places */
  const scatter *s = ctx;
  for (int64_t i = begin; i < end; i++)
    for (int64_t y = 0; y < s->h; y++) {
      const char *from = s->src + (i * s->h + y) * s->w * s->size;
      char *to = s->dst + (i / s->c * s->dn + i % s->c * s->dc + y * s->dh) * s->size;
      if (s->size == 4) for (int64_t x = 0; x < s->w; x++) ((float *)to)[x * s->dw] = ((const float *)from)[x];
      else for (int64_t x = 0; x < s->w; x++) ((double *)to)[x * s->dw] = ((const double *)from)[x];
    }
}

static int64_t floor_mod(int64_t a, int64_t b) { int64_t r = a % b; return r < 0 ? r + b : r; }

/* Taps that reach rows of phase (a, b), with their places in grad and in the weight */
static int64_t phase_taps(const conv *v, int64_t a, int64_t b, conv_tap *tap, int64_t *off) {
  int64_t n = 0;
  for (int64_t i = 0; i < v->kh; i++) {
    int64_t th = a + v->ph - i * v->dh;
    if (floor_mod(th, v->sh)) continue;
    for (int64_t j = 0; j < v->kw; j++) {
      int64_t tw = b + v->pw - j * v->dw;
      if (floor_mod(tw, v->sw)) continue;
      tap[n] = (conv_tap){(int32_t)(th / v->sh), (int32_t)(tw / v->sw)};
      off[n++] = i * v->wt.stride[2] + j * v->wt.stride[3];
    }
  }
  return n;
}

int amp__cpu_conv2d_input(amp_call *call) {
  amp_tensor *gy = call->in[0], *w = call->in[1], *o = call->out[0];
  conv v = {.type = amp__nn_type(o->dtype)};
  tables t = {0};
  amp_block *phase = NULL;
  int rc = AMP_E_MEMORY;
  geometry(&v, call->a + 9);
  sizes(&v, o->size, w->size, gy->size);
  if (o->numel == 0) return 0;
  if (v.cg == 1 && v.og == 1 && v.groups > 1) return amp__conv_depthwise(call, 1);
  bool strided = v.sh > 1 || v.sw > 1;
  if (!amp__nn_read(&v.y, gy, v.type) || !amp__nn_read(&v.wt, w, v.type) ||
      !(strided ? amp__nn_write(&v.x, o, v.type) : write_planes(&v.x, o, v.type))) goto out;
  if (!make_tables(&t, &v, v.og * v.cg * v.kh * v.kw)) goto out;
  if (strided) {
    phase = amp__block_new(AMP_CPU, 0, (size_t)(v.n * v.cg * ((v.h + v.sh - 1) / v.sh) * ((v.w + v.sw - 1) / v.sw)) * v.size + 64);
    if (!phase) goto out;
    zero_view(&v.x, o, v.type);
  }
  rc = 0;
  for (int64_t a = 0; a < v.sh && a < v.h; a++)
    for (int64_t b = 0; b < v.sw && b < v.w; b++) {
      int64_t nt = phase_taps(&v, a, b, t.tap, t.off), ph = (v.h - a + v.sh - 1) / v.sh, pw = (v.w - b + v.sw - 1) / v.sw;
      if (nt == 0 || gy->numel == 0) {
        if (!strided) zero_view(&v.x, o, v.type);
        continue;
      }
      pass p = {.rows = v.cg, .k = v.og * nt};
      p.im = (conv_image){.xn = v.y.stride[0], .xc = v.y.stride[1], .xh = v.y.stride[2], .xw = v.y.stride[3], .c = v.og, .h = v.oh,
                          .w = v.ow, .oh = ph, .ow = pw, .sh = 1, .sw = 1, .ntap = nt, .tap = t.tap,
                          .channels_inside = v.y.stride[1] == 1 && v.og > 1};
      p.on = strided ? v.cg * ph * pw : v.x.stride[0];
      p.oc = strided ? ph * pw : v.x.stride[1];
      p.op = strided ? 1 : pixel_stride(&v.x, o->size);
      for (int64_t g = 0; g < v.groups && rc == 0; g++) {
        p.im.x = (const char *)v.y.p + g * v.og * v.y.stride[1] * v.size;
        char *dst = (char *)v.x.p + (g * v.cg * v.x.stride[1] + a * v.x.stride[2] + b * v.x.stride[3]) * v.size;
        p.out = strided ? phase->data : dst;
        weight_matrix(t.matrix, (const char *)v.wt.p + g * v.og * v.wt.stride[0] * v.size, v.size, v.cg, v.wt.stride[1], v.og,
                      v.wt.stride[0], nt, t.off, p.im.channels_inside);
        p.weight = t.matrix;
        rc = run_pass(&p, v.n, v.type);
        if (rc || !strided) continue;
        scatter s = {phase->data, dst, v.cg, v.n, ph, pw, v.x.stride[0], v.x.stride[1], v.sh * v.x.stride[2], v.sw * v.x.stride[3], v.size};
        amp__nn_par(amp__nn_threads(v.n * v.cg * ph * pw, v.n * v.cg), v.n * v.cg, scatter_body, &s);
      }
    }
  if (rc == 0) amp__nn_written(&v.x, o, v.type);
out:
  if (phase) amp__block_free(phase);
  amp__nn_give(&t.s);
  amp__nn_drop(&v.x); amp__nn_drop(&v.wt); amp__nn_drop(&v.y);
  return rc;
}

/* -- conv2d_weight: grad, input -> weight's gradient ----------------------------------------- */

int amp__cpu_conv2d_weight(amp_call *call) {
  amp_tensor *gy = call->in[0], *x = call->in[1], *o = call->out[0];
  conv v = {.type = amp__nn_type(o->dtype)};
  tables t = {0};
  int rc = AMP_E_MEMORY;
  geometry(&v, call->a + 9);
  sizes(&v, x->size, o->size, gy->size);
  if (o->numel == 0) return 0;
  if (v.cg == 1 && v.og == 1 && v.groups > 1) return amp__conv_depthwise(call, 2);
  if (!amp__nn_read(&v.x, x, v.type) || !read_planes(&v.y, gy, v.type) || !amp__nn_write(&v.wt, o, v.type)) goto out;
  int64_t nt = v.kh * v.kw, k = v.cg * nt, plane = v.oh * v.ow, yp = pixel_stride(&v.y, gy->size);
  if (!make_tables(&t, &v, v.og * k)) goto out;
  if (gy->numel == 0 || x->numel == 0) {
    zero_view(&v.wt, o, v.type);
    amp__nn_written(&v.wt, o, v.type);
    rc = 0;
    goto out;
  }
  all_taps(&v, t.tap);
  for (int64_t i = 0; i < nt; i++) t.off[i] = i / v.kw * v.wt.stride[2] + i % v.kw * v.wt.stride[3];
  conv_image m;
  image_of(&v, &m, t.tap);
  conv_planes planes = {.pn = v.y.stride[0], .pc = v.y.stride[1], .pp = yp, .pixels = plane};
  bool f64 = v.type == AMP_FLOAT64, direct = in_order(v.wt.stride, &v, m.channels_inside);
  int threads = threads_for(2.0 * (double)v.og * (double)k * (double)(v.n * plane));
  rc = 0;
  for (int64_t g = 0; g < v.groups && rc == 0; g++) {
    amp_gemm q = {.m = v.og, .n = k, .k = v.n * plane, .crs = k, .ccs = 1};
    char *dst = (char *)v.wt.p + g * v.og * v.wt.stride[0] * v.size;
    m.x = (const char *)v.x.p + g * v.cg * v.x.stride[1] * v.size;
    planes.p = (const char *)v.y.p + g * v.og * v.y.stride[1] * v.size;
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
        memcpy(dst + (r * v.wt.stride[0] + c * v.wt.stride[1] + t.off[tap]) * v.size, t.matrix + (r * k + i) * v.size, (size_t)v.size);
      }
  }
  if (rc == 0) amp__nn_written(&v.wt, o, v.type);
out:
  amp__nn_give(&t.s);
  amp__nn_drop(&v.x); amp__nn_drop(&v.wt); amp__nn_drop(&v.y);
  return rc;
}
