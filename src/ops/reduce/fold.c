/*
** ops/reduce/fold.c: a reducer over the reduced index of a plan (ops/reduce/reduce.h).
**
** The reduced index is cut into pieces whose size does not depend on threads and
** whose results are joined in order, so neither do sums.
**
**   lanes[64] (or columns[512]) in the class -> double / int64 -> joined by piece
*/
#include <stdlib.h>
#include "ops/reduce/reduce.h"

enum { ROW_CHUNK = 2048 }; /* converted at a time */

/* acc[0..n) takes the elements [lo, hi) of the reduced index; param: one of the class a column, or NULL */
static void fold_rows(const amp_rplan *plan, const amp_reducer *reducer, const amp_rblock *block, int64_t begin,
                      int64_t end, const char *param, char *acc)
{
  char buf[ROW_CHUNK * 8] __attribute__((aligned(64)));
  int column_stride = amp__class_size[reducer->cls];
  bool direct
      = plan->reduced_in[0] == 1
        && (plan->dtype == amp__class_dtype[reducer->cls] || (reducer->cls == AMP_C_U8 && plan->dtype == AMP_UINT8));
  int64_t chunk = direct && reducer->cls != AMP_C_U8 ? 4096 : ROW_CHUNK;
  if (plan->dtype == AMP_UINT8 && reducer->cls == AMP_C_U8) direct = false; /* truth values are 0 or 1 */
  bool pack
      = plan->reduced_dims > 1 && plan->reduced_size[0] < (direct ? 64 : 512); /* short runs are put together first */
  if (direct && plan->reduced_dims == 1 && end - begin <= chunk) {             /* a row is one run */
    const char *q = block->from + begin * plan->item_size;
    for (int c = 0; c < block->count; c++, q += plan->kept_in[0] * plan->item_size)
      reducer->row(end - begin, q, param ? param + c * column_stride : NULL, acc + c * 8);
    return;
  }
  for (int c = 0; c < block->count; c++) {
    const char *base = block->from + c * plan->kept_in[0] * plan->item_size;
    const void *m = param ? param + c * column_stride : NULL;
    int64_t packed = 0;
    amp_rpos pos;
    amp__rseek(plan, &pos, begin);
    for (int64_t at = begin; at < end;) {
      int64_t count = plan->reduced_size[0] - pos.index[0];
      if (count > end - at) count = end - at;
      if (count > chunk) count = chunk;
      const char *q = base + pos.offset * plan->item_size;
      if (pack) {
        amp__load(reducer->cls, buf + packed * column_stride, plan->dtype, q, plan->reduced_in[0], count);
        packed += count;
        if (packed > ROW_CHUNK - 512 || at + count == end) {
          reducer->row(packed, buf, m, acc + c * 8);
          packed = 0;
        }
      } else if (direct) reducer->row(count, q, m, acc + c * 8);
      else {
        amp__load(reducer->cls, buf, plan->dtype, q, plan->reduced_in[0], count);
        reducer->row(count, buf, m, acc + c * 8);
      }
      at += count;
      amp__rnext(plan, &pos, count);
    }
  }
}

/* Columns side by side. Where rows are short and follow each other without a gap, many make one. */
static void fold_columns(const amp_rplan *plan, const amp_reducer *reducer, const amp_rblock *block, int64_t begin,
                         int64_t end, const char *param, char *acc)
{
  char buf[AMP_CHUNK * 32] __attribute__((aligned(64))), lane[AMP_CHUNK * 16] __attribute__((aligned(64)));
  char sum[AMP_CHUNK * 16] __attribute__((aligned(64))), tiled[AMP_CHUNK * 8] __attribute__((aligned(64)));
  int column_stride = amp__class_size[reducer->cls], width = block->count, group = 1, taken = 0;
  bool dense = plan->kept_in[0] == 1, direct = dense && plan->dtype == amp__class_dtype[reducer->cls];
  if (dense && width == plan->kept_size[0] && plan->reduced_in[0] == width && width < 64) {
    group = AMP_CHUNK / width;
    if (param) {
      for (int g = 0; g < group; g++) memcpy(tiled + g * width * column_stride, param, (size_t)(width * column_stride));
      param = tiled;
    }
  }
  int all = width * group, several = AMP_CHUNK * 32 / (width * column_stride); /* rows that are widened together */
  if (several > 16) several = 16;
  reducer->init(all, lane, sum);
  amp_rpos pos;
  amp__rseek(plan, &pos, begin);
  for (int64_t at = begin; at < end;) {
    int64_t rows = plan->reduced_size[0] - pos.index[0], most = group > 1                        ? group
                                                                : direct || 64 - taken < several ? 64 - taken
                                                                                                 : several;
    if (rows > end - at) rows = end - at;
    if (rows > most) rows = most;
    const char *q = block->from + pos.offset * plan->item_size;
    int64_t count = group > 1 ? rows * width : width;
    int together = group > 1 ? 1 : (int)rows;
    if (direct) reducer->cols(count, q, plan->reduced_in[0], together, param, lane);
    else if (group > 1) {
      amp__load(reducer->cls, buf, plan->dtype, q, plan->kept_in[0], count);
      reducer->cols(count, buf, 0, 1, param, lane);
    } else {
      if (dense && plan->reduced_in[0] == count) amp__load(reducer->cls, buf, plan->dtype, q, 1, count * rows);
      else
        for (int64_t k = 0; k < rows; k++)
          amp__load(reducer->cls, buf + k * count * column_stride, plan->dtype,
                    q + k * plan->reduced_in[0] * plan->item_size, plan->kept_in[0], count);
      reducer->cols(count, buf, count, (int)rows, param, lane);
    }
    taken += together;
    if (taken == 64) {
      reducer->fold(all, lane, sum);
      reducer->init(all, lane, NULL);
      taken = 0;
    }
    at += rows;
    amp__rnext(plan, &pos, rows);
  }
  if (taken) reducer->fold(all, lane, sum);
  for (int g = 0; g < group; g++) reducer->join(width, sum + g * width * 8, acc);
}

static void fold(const amp_rplan *plan, const amp_reducer *reducer, const amp_rblock *block, int64_t begin, int64_t end,
                 const char *param, char *acc)
{
  if (begin >= end) return;
  if (plan->columns) fold_columns(plan, reducer, block, begin, end, param, acc);
  else fold_rows(plan, reducer, block, begin, end, param, acc);
}

typedef struct {
  const amp_rplan *plan;
  const amp_reducer *reducer;
  const amp_rblock *block;
  const char *param;
  char *part;
  int64_t piece, step;
} pieces;

static void piece_part(int64_t begin, int64_t end, void *ctx)
{
  const pieces *pieces = ctx;
  for (int64_t i = begin; i < end; i++) {
    char *acc = pieces->part + i * pieces->step;
    int64_t a = i * pieces->piece,
            z = a + pieces->piece < pieces->plan->reduced ? a + pieces->piece : pieces->plan->reduced;
    pieces->reducer->init(pieces->block->count, NULL, acc);
    fold(pieces->plan, pieces->reducer, pieces->block, a, z, pieces->param, acc);
  }
}

/* The whole reduced index of a block, in pieces joined in order */
void amp__fold_block(const amp_rplan *plan, const amp_reducer *reducer, const amp_rblock *block, const char *param,
                     char *acc, int threads)
{
  int64_t width = plan->columns ? block->count : 1, piece = 65536 / width > 64 ? 65536 / width : 64;
  int64_t count = (plan->reduced + piece - 1) / piece;
  reducer->init(block->count, NULL, acc);
  if (count <= 1) {
    fold(plan, reducer, block, 0, plan->reduced, param, acc);
    return;
  }
  pieces pieces = {
    plan, reducer, block, param, NULL, piece, (reducer->sums == 2 ? AMP_CHUNK + block->count : block->count) * 8
  };
  char one[AMP_CHUNK * 16] __attribute__((aligned(64)));
  if (threads > 1 && (pieces.part = malloc((size_t)(count * pieces.step))) != NULL) {
    amp__parallel(threads, count, 1, piece_part, &pieces);
    for (int64_t i = 0; i < count; i++) reducer->join(block->count, pieces.part + i * pieces.step, acc);
    free(pieces.part);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t z = (i + 1) * piece < plan->reduced ? (i + 1) * piece : plan->reduced;
    reducer->init(block->count, NULL, one);
    fold(plan, reducer, block, i * piece, z, param, one);
    reducer->join(block->count, one, acc);
  }
}
