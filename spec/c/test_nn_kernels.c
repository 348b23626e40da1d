/*
** test_nn_kernels.c: products, convolutions and pooling against loops in double that say what each op means
** (nn_kernels.h: how cases are drawn).
*/
#include "nn_kernels.h"

/* -- Products ------------------------------------------------------------------------------- */

static void products(void)
{
  what = "matmul";
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype();
    int64_t b = draw(1, 3), m = draw(1, 40), k = draw(1, r % 10 ? 40 : 700), n = draw(1, 70);
    amp_tensor *x = SOME(dt, b, m, k), *y = r & 1 ? SOME(dt, k, n) : SOME(dt, b, k, n);
    double *want = doubles(b * m * n);
    for (int64_t i = 0; i < b * m * n; i++)
      for (int64_t p = 0; p < k; p++)
        want[i] += get(x, i / n * k + p) * get(y, (r & 1 ? 0 : i / (m * n) * k * n) + p * n + i % n);
    OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
    near_all(out[0], want, rounding[dt]);
    free(want);
    drop_all(2, (amp_tensor *[]){ x, y });
  }
  what = "linear";
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype();
    int64_t b = draw(1, 3), m = draw(1, 40), k = draw(1, 70), n = draw(1, 70);
    amp_tensor *x = SOME(dt, b, m, k), *w = SOME(dt, n, k), *c = r & 1 ? SOME(dt, n) : NULL;
    double *want = doubles(b * m * n);
    for (int64_t i = 0; i < b * m * n; i++) {
      if (c) want[i] = get(c, i % n);
      for (int64_t p = 0; p < k; p++) want[i] += get(x, i / n * k + p) * get(w, i % n * k + p);
    }
    OK(call(AMP_OP_linear, NULL, 3, x, w, c, 0, 0, 0));
    near_all(out[0], want, rounding[dt]);
    free(want);
    drop_all(3, (amp_tensor *[]){ x, w, c });
  }
  what = "vectors";
  amp_tensor *x = SOME(AMP_FLOAT32, 300), *y = SOME(AMP_FLOAT32, 300, 7);
  double want[7] = { 0 };
  for (int j = 0; j < 7; j++)
    for (int p = 0; p < 300; p++) want[j] += get(x, p) * get(y, p * 7 + j);
  OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
  CHECK(out[0]->ndim == 1);
  near_all(out[0], want, 1e-6);
  drop_all(2, (amp_tensor *[]){ x, y });
  what = "integers wrap around";
  x = amp__tensor_make(AMP_INT8, AMP_CPU, 0, DIMS(1, 2));
  y = amp__tensor_make(AMP_INT8, AMP_CPU, 0, DIMS(2, 1));
  for (int i = 0; i < 2; i++) {
    put(x, i, 100);
    put(y, i, 3);
  }
  OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
  near_at(out[0], 0, (int8_t)600, 0);
  drop_all(2, (amp_tensor *[]){ x, y });
  what = "empty";
  x = SOME(AMP_FLOAT32, 3, 0);
  y = SOME(AMP_FLOAT32, 0, 4);
  OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
  near_all(out[0], (double[12]){ 0 }, 0);
  drop_all(2, (amp_tensor *[]){ x, y });
}

/* -- Convolutions ------------------------------------------------------------------------------ */

static void convolution(int dt, int64_t n, int64_t groups, int64_t cg, int64_t og, int64_t h, int64_t w, int64_t kh,
                        int64_t kw, const int64_t *g)
{
  int64_t oh = (h + 2 * g[2] - g[4] * (kh - 1) - 1) / g[0] + 1, ow = (w + 2 * g[3] - g[5] * (kw - 1) - 1) / g[1] + 1;
  int64_t xs[4] = { n, groups * cg, h, w }, ws[4] = { groups * og, cg, kh, kw }, ys[4] = { n, groups * og, oh, ow };
  amp_tensor *x = some(dt, draw(0, 3), 4, xs), *wt = some(dt, draw(0, 3), 4, ws),
             *b = draw(0, 1) ? SOME(dt, groups * og) : NULL, *gy = some(dt, draw(0, 3), 4, ys);
  double *y = doubles(gy->numel), *gx = doubles(x->numel), *gw = doubles(wt->numel);
  for (int64_t i = 0; i < gy->numel; i++) {
    int64_t q = i % ow, p = i / ow % oh, o = i / (ow * oh) % ys[1], img = i / (ow * oh * ys[1]);
    if (b) y[i] = get(b, o);
    for (int64_t c = 0; c < cg; c++)
      for (int64_t u = 0; u < kh; u++)
        for (int64_t v = 0; v < kw; v++) {
          int64_t r = p * g[0] - g[2] + u * g[4], s = q * g[1] - g[3] + v * g[5], ch = o / og * cg + c;
          if (r < 0 || r >= h || s < 0 || s >= w) continue;
          y[i] += get4(x, img, ch, r, s) * get4(wt, o, c, u, v);
          gx[((img * xs[1] + ch) * h + r) * w + s] += get(gy, i) * get4(wt, o, c, u, v);
          gw[((o * cg + c) * kh + u) * kw + v] += get(gy, i) * get4(x, img, ch, r, s);
        }
  }
  amp_slot a[24] = { { 0 } };
  for (int i = 0; i < 9; i++) a[i].i = i % 3 ? g[i / 3 * 2 + i % 3 - 1] : i != 3;
  a[9].i = groups;
  what = "convolution";
  OK(call(AMP_OP_convolution, a, 3, x, wt, b, 0, 0, 0));
  near_all(out[0], y, 2 * rounding[dt]);
  drop();
  memmove(a + 9, a, 10 * sizeof *a);
  a[0].i = 4;
  for (int i = 0; i < 4; i++) a[1 + i].i = xs[i];
  what = "convolution_input";
  OK(call(AMP_OP_convolution_input, a, 3, gy, wt, NULL, 0, 0, 0));
  near_all(out[0], gx, 2 * rounding[dt]);
  drop();
  for (int i = 0; i < 4; i++) a[1 + i].i = ws[i];
  what = "convolution_weight";
  OK(call(AMP_OP_convolution_weight, a, 2, gy, x, 0, 0, 0, 0));
  near_all(out[0], gw, 4 * rounding[dt]);
  free(y);
  free(gx);
  free(gw);
  drop_all(4, (amp_tensor *[]){ x, wt, b, gy });
}

static void convolutions(void)
{
  for (int r = 0; r < 60; r++) {
    int64_t groups = draw(0, 3) ? 1 : draw(2, 3), cg = draw(1, 4), og = draw(1, 9), kh = draw(1, 3), kw = draw(1, 3);
    int64_t g[6] = { draw(1, 3), draw(1, 3), draw(0, 2), draw(0, 2), draw(1, 2), draw(1, 2) };
    convolution(draw_dtype(), draw(1, 3), groups, cg, og, draw(5, 9), draw(5, 9), kh, kw, g);
  }
  const int64_t same[6] = { 1, 1, 1, 1, 1, 1 }, one[6] = { 1, 1, 0, 0, 1, 1 }, half[6] = { 2, 2, 1, 1, 1, 1 };
  for (int dt = AMP_FLOAT64; dt <= AMP_BFLOAT16; dt++) {
    convolution(dt, 2, 1, 16, 17, 8, 8, 3, 3, same); /* whole panels and their edges */
    convolution(dt, 2, 1, 16, 16, 7, 7, 1, 1, one);  /* the image is the column matrix */
    convolution(dt, 2, 6, 1, 1, 7, 9, 3, 3, half);   /* one filter a channel */
    convolution(dt, 0, 1, 3, 4, 6, 6, 3, 3, same);   /* an empty batch */
  }
}

/* -- Pooling ------------------------------------------------------------------------------------- */

/* Images n x channels x height x width under windows; the reference's results */
typedef struct pool {
  int64_t n, channels, height, width, kernel[2], stride[2], padding[2], out_height, out_width;
  bool mean, whole; /* the average; its count includes the padding */
  double *want, *place, *grad;
} pool;

static pool draw_pool(bool mean)
{
  pool p = { .n = draw(0, 2), .mean = mean };
  p.channels = draw(1, 9);
  p.height = draw(4, 9);
  p.width = draw(4, 9);
  for (int i = 0; i < 2; i++) p.kernel[i] = draw(1, 3);
  for (int i = 0; i < 2; i++) p.stride[i] = draw(1, 3);
  for (int i = 0; i < 2; i++) p.padding[i] = draw(0, (int)p.kernel[i] / 2);
  p.whole = draw(0, 1);
  return p;
}

/* The i-th result, its place in the image, and its share of the input's gradient */
static void pool_one(pool *p, const amp_tensor *x, const amp_tensor *grad, int64_t i)
{
  int64_t left = i % p->out_width * p->stride[1] - p->padding[1], best = -1, count = 0,
          top = i / p->out_width % p->out_height * p->stride[0] - p->padding[0],
          plane = i / (p->out_width * p->out_height);
  int64_t channel = plane % p->channels, image = plane / p->channels;
  double sum = 0, most = -INFINITY, *to = p->grad + plane * p->height * p->width;
  for (int64_t u = top; u < top + p->kernel[0]; u++)
    for (int64_t v = left; v < left + p->kernel[1]; v++) {
      if (u < 0 || v < 0 || u >= p->height || v >= p->width) {
        count += p->whole && u < p->height + p->padding[0] && v < p->width + p->padding[1];
        continue;
      }
      double element = get4(x, image, channel, u, v);
      count++;
      sum += element;
      if (best < 0 || element > most || isnan(element)) {
        most = element;
        best = u * p->width + v;
      }
    }
  p->want[i] = p->mean ? sum / (double)count : most;
  p->place[i] = (double)best + 1;
  if (!p->mean) to[best] += get(grad, i);
  else
    for (int64_t u = top < 0 ? 0 : top; u < top + p->kernel[0] && u < p->height; u++)
      for (int64_t v = left < 0 ? 0 : left; v < left + p->kernel[1] && v < p->width; v++)
        to[u * p->width + v] += get(grad, i) / (double)count;
}

static int call_pool(const pool *p, amp_tensor *x)
{
  amp_slot a[24] = { { 0 } };
  for (int i = 0; i < 2; i++) {
    a[i].i = p->kernel[i];
    a[2 + i].i = p->stride[i];
    a[4 + i].i = p->padding[i];
    a[6 + i].i = 1;
  }
  if (p->mean) {
    a[6].i = 0;
    a[7].i = p->whole;
    a[8].i = AMP_NONE;
  } else a[9].i = 1;
  what = p->mean ? "avg_pool2d" : "max_pool2d";
  return call(p->mean ? AMP_OP_avg_pool2d : AMP_OP_max_pool2d, a, 1, x, 0, 0, 0, 0, 0);
}

/* The backward's attributes: the input's shape, then, of a mean, the size of the result, kernel, stride and padding, of
** three dimensions each, whether padding counts, no divisor; else the number of spatial dimensions. */
static void backward_slots(const pool *p, const amp_tensor *x, amp_slot *a)
{
  a[0].i = 4;
  for (int i = 0; i < 4; i++) a[1 + i].i = x->size[i];
  a[9].i = 2;
  if (!p->mean) return;
  const int64_t of_mean[14]
      = { 1, p->out_height, p->out_width,  1,        p->kernel[0], p->kernel[1], 1, p->stride[0], p->stride[1],
          0, p->padding[0], p->padding[1], p->whole, AMP_NONE };
  for (int i = 0; i < 14; i++) a[10 + i].i = of_mean[i];
}

static void pool_case(int dtype, pool *p, bool odd)
{
  amp_tensor *x = SOME(dtype, p->n, p->channels, p->height, p->width);
  amp_slot a[24] = { { 0 } };
  if (odd)
    for (int64_t i = 0; i < x->numel; i += 7) put(x, i, i % 2 ? NAN : -INFINITY);
  OK(call_pool(p, x));
  amp_tensor *y = out[0], *at = out[1], *grad = some(dtype, draw(0, 3), 4, y->size);
  p->out_height = y->size[2];
  p->out_width = y->size[3];
  p->want = doubles(y->numel);
  p->grad = doubles(x->numel);
  p->place = doubles(y->numel);
  for (int64_t i = 0; i < y->numel; i++) pool_one(p, x, grad, i);
  near_all(y, p->want, rounding[dtype]);
  if (!p->mean) near_all(at, p->place, 0);
  out[0] = out[1] = NULL;
  backward_slots(p, x, a);
  if (p->mean) OK(call(AMP_OP_avg_pool_backward, a, 1, grad, NULL, 0, 0, 0, 0));
  else OK(call(AMP_OP_pool_scatter, a, 2, grad, at, 0, 0, 0, 0));
  near_all(out[0], p->grad, 2 * rounding[dtype]);
  drop();
  if (!p->mean) {
    OK(call(AMP_OP_pool_gather, a + 9, 2, x, at, 0, 0, 0, 0));
    near_all(out[0], p->want, 0);
  }
  free(p->want);
  free(p->grad);
  free(p->place);
  drop_all(4, (amp_tensor *[]){ x, y, at, grad });
}

static void pools(void)
{
  for (int r = 0; r < 60; r++) {
    int dtype = draw_dtype();
    bool mean = r % 3 == 0;
    pool p = draw_pool(mean);
    pool_case(dtype, &p, !mean && r % 4 == 1);
  }
}

int main(void)
{
  S = amp_state_new();
  if (S == NULL) return 1;
  S->grad_mode = 0;
  products();
  convolutions();
  pools();
  printf("%s\n", getenv("AMP_PLUGIN_DIR") ? amp_plugin_info("onednn") : "plain kernels");
  amp_state_free(S);
  return DONE();
}
