/*
** onednn_direct.c: what oneDNN does when called by itself, to hold amp against.
**
**   cc -O2 onednn_direct.c -ldnnl -lm -o onednn_direct
**   ./onednn_direct matmul f32 512 512 512           m n k
**   ./onednn_direct linear bf16 32 64 64             m n k, the second operand transposed (a weight)
**   ./onednn_direct conv f32 nchw 64 32 64 14 14 3 1 1   n c oc h w kernel stride padding
**   ./onednn_direct                                  the shapes of the benchmark pages
**
** Prints GFLOP/s (by the clock, and by processor time) and microseconds, best of several runs, on as many threads as
** OMP_NUM_THREADS allows. Convolutions run forward, dgrad and wgrad; data
** stays in the named layout (any: oneDNN's choice), the weight in oneDNN's choice, nothing is reordered. Builds with
** oneDNN 2 and 3.
*/
#define _POSIX_C_SOURCE 200809L
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

#define CHECK(x) do { dnnl_status_t s_ = (x); if (s_ != dnnl_success) { printf("%s: status %d\n", #x, (int)s_); return -1; } } while (0)

static double clock_of(clockid_t c) {
  struct timespec t;
  clock_gettime(c, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now(void) { return clock_of(CLOCK_MONOTONIC); }
static double busy(void) { return clock_of(CLOCK_PROCESS_CPUTIME_ID); }
static double best_busy;   /* seconds of processor time of the best run: what a shared machine cannot spoil */

/* -- One way to write both APIs ------------------------------------------------- */

typedef dnnl_memory_desc_t md_t;
#if DNNL_VERSION_MAJOR >= 3
#define MD(m) (m)
#else
#define MD(m) (&(m))
#endif

/* stride NULL: whatever oneDNN likes best */
static int md_make(md_t *m, int n, const dnnl_dim_t *size, dnnl_data_type_t t, const dnnl_dim_t *stride) {
  dnnl_dims_t d = {0}, s = {0};
  for (int i = 0; i < n; i++) { d[i] = size[i]; s[i] = stride ? stride[i] : 0; }
#if DNNL_VERSION_MAJOR >= 3
  return stride ? dnnl_memory_desc_create_with_strides(m, n, d, t, s) : dnnl_memory_desc_create_with_tag(m, n, d, t, dnnl_format_tag_any);
#else
  return stride ? dnnl_memory_desc_init_by_strides(m, n, d, t, s) : dnnl_memory_desc_init_by_tag(m, n, d, t, dnnl_format_tag_any);
#endif
}

/* The layout the primitive settled on */
static md_t md_of(dnnl_primitive_desc_t pd, dnnl_query_t what) {
#if DNNL_VERSION_MAJOR >= 3
  return (md_t)dnnl_primitive_desc_query_md(pd, what, 0);
#else
  return *dnnl_primitive_desc_query_md(pd, what, 0);
#endif
}

static int matmul_desc(dnnl_primitive_desc_t *pd, md_t a, md_t b, md_t c) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_matmul_primitive_desc_create(pd, engine, a, b, NULL, c, NULL);
#else
  dnnl_matmul_desc_t d;
  CHECK(dnnl_matmul_desc_init(&d, &a, &b, NULL, &c));
  return dnnl_primitive_desc_create(pd, &d, NULL, engine, NULL);
#endif
}

static int conv_desc(dnnl_primitive_desc_t *pd, int which, md_t x, md_t w, md_t y, const dnnl_dim_t *s, const dnnl_dim_t *p) {
  const dnnl_dims_t d = {0};
#if DNNL_VERSION_MAJOR >= 3
  dnnl_primitive_desc_t f;
  CHECK(dnnl_convolution_forward_primitive_desc_create(&f, engine, dnnl_forward_training, dnnl_convolution_direct, x, w, NULL, y, s, d, p, p, NULL));
  if (which == 0) { *pd = f; return 0; }
  if (which == 1) CHECK(dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, x, w, y, s, d, p, p, f, NULL));
  else CHECK(dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, x, w, NULL, y, s, d, p, p, f, NULL));
  dnnl_primitive_desc_destroy(f);
  return 0;
#else
  dnnl_convolution_desc_t c;
  if (which == 0) CHECK(dnnl_dilated_convolution_forward_desc_init(&c, dnnl_forward_training, dnnl_convolution_direct, &x, &w, NULL, &y, s, d, p, p));
  else if (which == 1) CHECK(dnnl_dilated_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &x, &w, &y, s, d, p, p));
  else CHECK(dnnl_dilated_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct, &x, &w, NULL, &y, s, d, p, p));
  if (which == 0) return dnnl_primitive_desc_create(pd, &c, NULL, engine, NULL);
  dnnl_convolution_desc_t fc;
  dnnl_primitive_desc_t f;
  CHECK(dnnl_dilated_convolution_forward_desc_init(&fc, dnnl_forward_training, dnnl_convolution_direct, &x, &w, NULL, &y, s, d, p, p));
  CHECK(dnnl_primitive_desc_create(&f, &fc, NULL, engine, NULL));
  CHECK(dnnl_primitive_desc_create(pd, &c, NULL, engine, f));
  dnnl_primitive_desc_destroy(f);
  return 0;
#endif
}

static int memory(dnnl_memory_t *m, md_t d) {
  CHECK(dnnl_memory_create(m, MD(d), engine, DNNL_MEMORY_ALLOCATE));
  void *p;
  dnnl_memory_get_data_handle(*m, &p);
  memset(p, 0x3c, dnnl_memory_desc_get_size(MD(d)));   /* small numbers in f32 and bf16 */
  return 0;
}

/* Best seconds of a run */
static double best_of(dnnl_primitive_t p, int n, const dnnl_exec_arg_t *arg, double flop) {
  int rep = (int)(2e8 / flop);
  rep = rep < 1 ? 1 : rep > 2000 ? 2000 : rep;
  double best = 1e30;
  double begin = now();
  best_busy = 1e30;
  for (int i = 0; i < 12 && (i == 0 || now() - begin < 2); i++) {
    double t = now(), u = busy();
    for (int r = 0; r < rep; r++) dnnl_primitive_execute(p, stream, n, arg);
    dnnl_stream_wait(stream);
    t = (now() - t) / rep;
    u = (busy() - u) / rep;
    if (u < best_busy) best_busy = u;
    if (t < best) best = t;
  }
  return best;
}

static int matmul(const char *type, int transposed, long m, long n, long k) {
  dnnl_data_type_t t = strcmp(type, "bf16") ? dnnl_f32 : dnnl_bf16;
  dnnl_dim_t da[2] = {m, k}, db[2] = {k, n}, dc[2] = {m, n}, sa[2] = {k, 1}, sb[2] = {transposed ? 1 : n, transposed ? k : 1}, sc[2] = {n, 1};
  md_t a, b, c;
  dnnl_primitive_desc_t pd;
  dnnl_primitive_t p;
  dnnl_memory_t ma, mb, mc;
  CHECK(md_make(&a, 2, da, t, sa));
  CHECK(md_make(&b, 2, db, t, sb));
  CHECK(md_make(&c, 2, dc, t, sc));
  CHECK(matmul_desc(&pd, a, b, c));
  CHECK(dnnl_primitive_create(&p, pd));
  if (memory(&ma, a) || memory(&mb, b) || memory(&mc, c)) return -1;
  dnnl_exec_arg_t arg[3] = {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}};
  double flop = 2.0 * (double)m * (double)n * (double)k, s = best_of(p, 3, arg, flop);
  printf("%s %s %ld %ld %ld: %.1f GFLOP/s %.2f us, %.1f per processor second\n", transposed ? "linear" : "matmul", type, m, n, k, flop / s * 1e-9, s * 1e6,
         flop / best_busy * 1e-9);
  if (t == dnnl_f32) {
    void *pa, *pb, *pc;
    dnnl_memory_get_data_handle(ma, &pa); dnnl_memory_get_data_handle(mb, &pb); dnnl_memory_get_data_handle(mc, &pc);
    int rep = flop > 2e8 ? 1 : flop < 1e5 ? 2000 : (int)(2e8 / flop);
    double best = 1e30;
    for (int i = 0; i < 12; i++) {
      double u = now();
      for (int r = 0; r < rep; r++) dnnl_sgemm('N', transposed ? 'T' : 'N', m, n, k, 1, pa, k, pb, transposed ? k : n, 0, pc, n);
      u = (now() - u) / rep;
      if (u < best) best = u;
    }
    printf("  dnnl_sgemm: %.1f GFLOP/s %.2f us\n", flop / best * 1e-9, best * 1e6);
  }
  dnnl_memory_destroy(ma); dnnl_memory_destroy(mb); dnnl_memory_destroy(mc);
  dnnl_primitive_destroy(p);
  dnnl_primitive_desc_destroy(pd);
  return 0;
}

static void strides4(const dnnl_dim_t *d, int last, dnnl_dim_t *s) {
  dnnl_dim_t plain[4] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}, nhwc[4] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  memcpy(s, last ? nhwc : plain, sizeof plain);
}

static int conv(const char *type, const char *layout, long n, long c, long oc, long h, long w, long k, long stride, long pad) {
  static const char *const name[3] = {"fwd", "dgrad", "wgrad"};
  dnnl_data_type_t t = strcmp(type, "bf16") ? dnnl_f32 : dnnl_bf16;
  int last = strcmp(layout, "nhwc") == 0, any = strcmp(layout, "any") == 0;
  long oh = (h + 2 * pad - k) / stride + 1, ow = (w + 2 * pad - k) / stride + 1;
  dnnl_dim_t dx[4] = {n, c, h, w}, dw[4] = {oc, c, k, k}, dy[4] = {n, oc, oh, ow}, sx[4], sy[4];
  dnnl_dims_t st = {stride, stride}, pd2 = {pad, pad};
  strides4(dx, last, sx);
  strides4(dy, last, sy);
  for (int which = 0; which < 3; which++) {
    md_t x, wt, y;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    dnnl_memory_t mx, mw, my;
    CHECK(md_make(&x, 4, dx, t, any ? NULL : sx));
    CHECK(md_make(&wt, 4, dw, t, NULL));
    CHECK(md_make(&y, 4, dy, t, any ? NULL : sy));
    CHECK(conv_desc(&pd, which, x, wt, y, st, pd2));
    x = md_of(pd, which == 1 ? dnnl_query_diff_src_md : dnnl_query_src_md);
    wt = md_of(pd, which == 2 ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    y = md_of(pd, which == 0 ? dnnl_query_dst_md : dnnl_query_diff_dst_md);
    CHECK(dnnl_primitive_create(&p, pd));
    if (memory(&mx, x) || memory(&mw, wt) || memory(&my, y)) return -1;
    dnnl_exec_arg_t fwd[3] = {{DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, mw}, {DNNL_ARG_DST, my}};
    dnnl_exec_arg_t dgrad[3] = {{DNNL_ARG_DIFF_SRC, mx}, {DNNL_ARG_WEIGHTS, mw}, {DNNL_ARG_DIFF_DST, my}};
    dnnl_exec_arg_t wgrad[3] = {{DNNL_ARG_SRC, mx}, {DNNL_ARG_DIFF_WEIGHTS, mw}, {DNNL_ARG_DIFF_DST, my}};
    double flop = 2.0 * (double)n * (double)oc * (double)oh * (double)ow * (double)c * (double)k * (double)k;
    double s = best_of(p, 3, which == 0 ? fwd : which == 1 ? dgrad : wgrad, flop);
    const char *impl = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl);
    printf("conv %s %s %ldx%ldx%ldx%ld -> %ld, %ldx%ld/%ld %s: %.1f GFLOP/s %.1f us, %.1f per processor second (%s)\n", type, layout, n, c, h, w, oc, k, k, stride, name[which],
           flop / s * 1e-9, s * 1e6, flop / best_busy * 1e-9, impl);
    dnnl_memory_destroy(mx); dnnl_memory_destroy(mw); dnnl_memory_destroy(my);
    dnnl_primitive_destroy(p);
    dnnl_primitive_desc_destroy(pd);
  }
  return 0;
}

static int standard(void) {
  static const long size[] = {32, 64, 128, 256, 512, 1024, 2048};
  static const long layer[][8] = {{64, 1, 32, 28, 28, 3, 1, 1}, {64, 32, 64, 14, 14, 3, 1, 1}, {8, 64, 64, 56, 56, 3, 1, 1}, {8, 256, 64, 56, 56, 1, 1, 0}, {8, 256, 256, 14, 14, 3, 1, 1}, {8, 128, 128, 56, 56, 3, 2, 1}};
  static const char *const type[] = {"f32", "bf16"}, *const layout[] = {"any", "nhwc", "nchw"};
  for (int t = 0; t < 2; t++) {
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) for (int tr = 0; tr < 2; tr++) matmul(type[t], tr, size[i], size[i], size[i]);
    matmul(type[t], 1, 32, 64, 64);
    matmul(type[t], 1, 512, 4096, 4096);
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
      for (int l = 0; l < 3; l++) {
        const long *v = layer[i];
        conv(type[t], layout[l], v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
      }
  }
  return 0;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
  CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
  long v[8] = {0};
  for (int i = 0; i < 8 && i + (argc > 1 && !strcmp(argv[1], "conv") ? 4 : 3) < argc; i++) v[i] = atol(argv[i + (!strcmp(argv[1], "conv") ? 4 : 3)]);
  if (argc == 1) return standard();
  if (argc == 6 && (!strcmp(argv[1], "matmul") || !strcmp(argv[1], "linear"))) return matmul(argv[2], argv[1][0] == 'l', v[0], v[1], v[2]);
  if (argc == 12 && !strcmp(argv[1], "conv")) return conv(argv[2], argv[3], v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
  printf("usage: see the head of onednn_direct.c\n");
  return 2;
}
