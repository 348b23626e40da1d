/*
** cpu_fold.c: a reducer over the reduced index of a plan (cpu_reduce.h).
**
** The reduced index is cut into pieces whose size does not depend on threads and
** whose results are joined in order, so neither do sums.
**
**   lanes[64] (or columns[512]) in the class -> double / int64 -> joined by piece
*/
#include <stdlib.h>
#include "cpu_reduce.h"

enum { ROW_CHUNK = 2048 }; /* converted at a time */

/* acc[0..n) takes the elements [lo, hi) of the reduced index; param: one of the class a column, or NULL */
static void fold_rows(const amp_rplan *p, const amp_reducer *r, const amp_rblock *b, int64_t lo, int64_t hi, const char *param, char *acc)
{
  char buf[ROW_CHUNK * 8] __attribute__((aligned(64)));
  int cs = amp__class_size[r->cls];
  bool direct = p->rin[0] == 1 && (p->dtype == amp__class_dtype[r->cls] || (r->cls == AMP_C_U8 && p->dtype == AMP_UINT8));
  int64_t chunk = direct && r->cls != AMP_C_U8 ? 4096 : ROW_CHUNK;
  if (p->dtype == AMP_UINT8 && r->cls == AMP_C_U8) direct = false;  /* truth values are 0 or 1 */
  bool pack = p->nr > 1 && p->rsize[0] < (direct ? 64 : 512); /* short runs are put together first */
  if (direct && p->nr == 1 && hi - lo <= chunk) { /* a row is one run */
    const char *q = b->in + lo * p->es;
    for (int c = 0; c < b->n; c++, q += p->kin[0] * p->es) r->row(hi - lo, q, param ? param + c * cs : NULL, acc + c * 8);
    return;
  }
  for (int c = 0; c < b->n; c++) {
    const char *base = b->in + c * p->kin[0] * p->es;
    const void *m = param ? param + c * cs : NULL;
    int64_t packed = 0;
    amp_rpos x;
    amp__rseek(p, &x, lo);
    for (int64_t at = lo; at < hi; ) {
      int64_t n = p->rsize[0] - x.index[0];
      if (n > hi - at) n = hi - at;
      if (n > chunk) n = chunk;
      const char *q = base + x.offset * p->es;
      if (pack) {
        amp__load(r->cls, buf + packed * cs, p->dtype, q, p->rin[0], n);
        packed += n;
        if (packed > ROW_CHUNK - 512 || at + n == hi) {
          r->row(packed, buf, m, acc + c * 8);
          packed = 0;
        }
      } else if (direct) r->row(n, q, m, acc + c * 8);
      else {
        amp__load(r->cls, buf, p->dtype, q, p->rin[0], n);
        r->row(n, buf, m, acc + c * 8);
      }
      at += n;
      amp__rnext(p, &x, n);
    }
  }
}

/* Columns side by side. Where rows are short and follow each other without a gap, many make one. */
static void fold_columns(const amp_rplan *p, const amp_reducer *r, const amp_rblock *b, int64_t lo, int64_t hi, const char *param, char *acc)
{
  char buf[AMP_CHUNK * 32] __attribute__((aligned(64))), lane[AMP_CHUNK * 16] __attribute__((aligned(64)));
  char sum[AMP_CHUNK * 16] __attribute__((aligned(64))), tiled[AMP_CHUNK * 8] __attribute__((aligned(64)));
  int cs = amp__class_size[r->cls], width = b->n, group = 1, taken = 0;
  bool dense = p->kin[0] == 1, direct = dense && p->dtype == amp__class_dtype[r->cls];
  if (dense && width == p->ksize[0] && p->rin[0] == width && width < 64) {
    group = AMP_CHUNK / width;
    if (param) {
      for (int g = 0; g < group; g++) memcpy(tiled + g * width * cs, param, (size_t)(width * cs));
      param = tiled;
    }
  }
  int all = width * group, several = AMP_CHUNK * 32 / (width * cs); /* rows that are widened together */
  if (several > 16) several = 16;
  r->init(all, lane, sum);
  amp_rpos x;
  amp__rseek(p, &x, lo);
  for (int64_t at = lo; at < hi; ) {
    int64_t rows = p->rsize[0] - x.index[0], most = group > 1 ? group : direct || 64 - taken < several ? 64 - taken : several;
    if (rows > hi - at) rows = hi - at;
    if (rows > most) rows = most;
    const char *q = b->in + x.offset * p->es;
    int64_t n = group > 1 ? rows * width : width;
    int together = group > 1 ? 1 : (int)rows;
    if (direct) r->cols(n, q, p->rin[0], together, param, lane);
    else if (group > 1) {
      amp__load(r->cls, buf, p->dtype, q, p->kin[0], n);
      r->cols(n, buf, 0, 1, param, lane);
    } else {
      if (dense && p->rin[0] == n) amp__load(r->cls, buf, p->dtype, q, 1, n * rows);
      else for (int64_t k = 0; k < rows; k++) amp__load(r->cls, buf + k * n * cs, p->dtype, q + k * p->rin[0] * p->es, p->kin[0], n);
      r->cols(n, buf, n, (int)rows, param, lane);
    }
    taken += together;
    if (taken == 64) {
      r->fold(all, lane, sum);
      r->init(all, lane, NULL);
      taken = 0;
    }
    at += rows;
    amp__rnext(p, &x, rows);
  }
  if (taken) r->fold(all, lane, sum);
  for (int g = 0; g < group; g++) r->join(width, sum + g * width * 8, acc);
}

static void fold(const amp_rplan *p, const amp_reducer *r, const amp_rblock *b, int64_t lo, int64_t hi, const char *param, char *acc)
{
  if (lo >= hi) return;
  if (p->columns) fold_columns(p, r, b, lo, hi, param, acc);
  else fold_rows(p, r, b, lo, hi, param, acc);
}

typedef struct { const amp_rplan *p; const amp_reducer *r; const amp_rblock *b; const char *param; char *part; int64_t piece, step; } pieces;

static void piece_part(int64_t lo, int64_t hi, void *ctx)
{
  const pieces *k = ctx;
  for (int64_t i = lo; i < hi; i++) {
    char *acc = k->part + i * k->step;
    int64_t a = i * k->piece, z = a + k->piece < k->p->reduced ? a + k->piece : k->p->reduced;
    k->r->init(k->b->n, NULL, acc);
    fold(k->p, k->r, k->b, a, z, k->param, acc);
  }
}

/* The whole reduced index of a block, in pieces joined in order */
void amp__fold_block(const amp_rplan *p, const amp_reducer *r, const amp_rblock *b, const char *param, char *acc, int threads)
{
  int64_t width = p->columns ? b->n : 1, piece = 65536 / width > 64 ? 65536 / width : 64;
  int64_t n = (p->reduced + piece - 1) / piece;
  r->init(b->n, NULL, acc);
  if (n <= 1) { fold(p, r, b, 0, p->reduced, param, acc); return; }
  pieces k = { p, r, b, param, NULL, piece, (r->sums == 2 ? AMP_CHUNK + b->n : b->n) * 8 };
  char one[AMP_CHUNK * 16] __attribute__((aligned(64)));
  if (threads > 1 && (k.part = malloc((size_t)(n * k.step))) != NULL) {
    amp__parallel(threads, n, 1, piece_part, &k);
    for (int64_t i = 0; i < n; i++) r->join(b->n, k.part + i * k.step, acc);
    free(k.part);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t z = (i + 1) * piece < p->reduced ? (i + 1) * piece : p->reduced;
    r->init(b->n, NULL, one);
    fold(p, r, b, i * piece, z, param, one);
    r->join(b->n, one, acc);
  }
}
