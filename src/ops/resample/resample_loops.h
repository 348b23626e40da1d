/*
** ops/resample/resample_loops.h: loops of resampling over the computing type `real`, names by
** N(name); included by ops/resample/resample.c once a type. Tables of taps are rational
** in double and rounded once here.
*/

/* A dimension's taps in `real`. If flat > 0 every output has that many in `at` and `flat_weight`, the k-th of output o
** at [k * outputs + o]: a tap is split in halves where there are fewer, so that loops are the same for all. */
typedef struct {
  const axis *axis;
  real *weight;
  int32_t *place;
  real *flat_weight;
  int flat;
} NAME(taps);

static void NAME(axis)(NAME(taps) * taps, const axis *line, char **mem)
{
  int64_t total = line->start[line->outputs];
  taps->axis = line;
  taps->weight = (real *)*mem;
  *mem += ((size_t)total * sizeof(real) + 63) / 64 * 64;
  for (int64_t i = 0; i < total; i++) taps->weight[i] = (real)line->weight[i];
  taps->flat = line->least > 0 && line->most <= MAX_FLAT ? (int)line->most : 0;
  if (!taps->flat) return;
  taps->flat_weight = (real *)*mem;
  *mem += ((size_t)(line->outputs * line->most) * sizeof(real) + 63) / 64 * 64;
  taps->place = (int32_t *)*mem;
  *mem += ((size_t)(line->outputs * line->most) * sizeof(int32_t) + 63) / 64 * 64;
  for (int64_t o = 0; o < line->outputs; o++) {
    int64_t count = line->start[o + 1] - line->start[o], extra = line->most - count, k = 0;
    real rest = taps->weight[line->start[o]];
    for (; k < extra; k++) {
      rest /= 2;
      taps->flat_weight[k * line->outputs + o] = rest;
      taps->place[k * line->outputs + o] = (int32_t)line->first[o];
    }
    for (int64_t i = 0; i < count; i++, k++) {
      taps->flat_weight[k * line->outputs + o] = i == 0 ? rest : taps->weight[line->start[o] + i];
      taps->place[k * line->outputs + o] = (int32_t)(line->first[o] + i);
    }
  }
}

/* y[o] = sum of w * x over the taps of o, along a row */
AMP_CLONES_OF(real) static void NAME(along)(const NAME(taps) * taps, const real *restrict x, real *restrict y)
{
  const axis *axis = taps->axis;
  int64_t count = axis->outputs;
  const real *weight = taps->flat_weight;
  const int32_t *place = taps->place;
  if (axis->plain && taps->flat == 1)
    for (int64_t o = 0; o < count; o++) y[o] = x[place[o]];
  else if (taps->flat == 2)
    for (int64_t o = 0; o < count; o++) y[o] = weight[o] * x[place[o]] + weight[count + o] * x[place[count + o]];
  else if (taps->flat == 4)
    for (int64_t o = 0; o < count; o++)
      y[o] = (weight[o] * x[place[o]] + weight[count + o] * x[place[count + o]])
             + (weight[2 * count + o] * x[place[2 * count + o]] + weight[3 * count + o] * x[place[3 * count + o]]);
  else if (taps->flat)
    for (int k = 0; k < taps->flat; k++, weight += count, place += count) {
      if (k == 0)
        for (int64_t o = 0; o < count; o++) y[o] = weight[o] * x[place[o]];
      else
        for (int64_t o = 0; o < count; o++) y[o] += weight[o] * x[place[o]];
    }
  else
    for (int64_t o = 0; o < count; o++) {
      const real *v = x + axis->first[o], *u = taps->weight + axis->start[o];
      real s = 0;
      for (int64_t k = 0, m = axis->start[o + 1] - axis->start[o]; k < m; k++) s += u[k] * v[k];
      y[o] = s;
    }
}

/* y = sum of w[k] * row k, n elements each; row k at rows + (first + k) % ring * step */
AMP_CLONES_OF(real)
static void NAME(across)(const real *weight, int64_t count, const real *rows, int64_t first, int64_t ring, int64_t step,
                         int64_t n, real *restrict y)
{
#define ROW(k) (rows + (first + (k)) % ring * step)
  if (count == 0) {
    memset(y, 0, (size_t)n * sizeof *y);
    return;
  }
  if (count == 1 && weight[0] == 1) {
    memcpy(y, ROW(0), (size_t)n * sizeof *y);
    return;
  }
  int64_t k = 0;
  if (count >= 4) {
    const real *a = ROW(0), *b = ROW(1), *c = ROW(2), *d = ROW(3);
    real e = weight[0], f = weight[1], g = weight[2], h = weight[3];
    for (int64_t j = 0; j < n; j++) y[j] = (e * a[j] + f * b[j]) + (g * c[j] + h * d[j]);
    k = 4;
  } else if (count >= 2) {
    const real *a = ROW(0), *b = ROW(1);
    real e = weight[0], f = weight[1];
    for (int64_t j = 0; j < n; j++) y[j] = e * a[j] + f * b[j];
    k = 2;
  } else {
    const real *a = ROW(0);
    real e = weight[0];
    for (int64_t j = 0; j < n; j++) y[j] = e * a[j];
    k = 1;
  }
  for (; k < count; k++) {
    const real *a = ROW(k);
    real e = weight[k];
    for (int64_t j = 0; j < n; j++) y[j] += e * a[j];
  }
#undef ROW
}

/* A plane of in_size[1] x in_size[2] at x; out[1] x out[2] to y. Rows resampled along wait in a ring till all that
** need them are made. */
static void NAME(plane)(const job *job, const NAME(taps) * taps, const real *x, real *y, real *ring)
{
  const axis *vertical = taps[1].axis, *horizontal = taps[2].axis;
  int64_t width = job->in_size[2], out_width = horizontal->outputs, done = 0;
  for (int64_t o = 0; o < vertical->outputs; o++, y += out_width) {
    int64_t first = vertical->first[o], count = vertical->start[o + 1] - vertical->start[o];
    if (horizontal->same) {
      NAME(across)(taps[1].weight + vertical->start[o], count, x, first, INT64_MAX, width, out_width, y);
      continue;
    }
    if (count == 1 && taps[1].weight[vertical->start[o]] == 1 && vertical->most == 1) {
      if (o > 0 && vertical->first[o - 1] == first && vertical->start[o] > vertical->start[o - 1])
        memcpy(y, y - out_width, (size_t)out_width * sizeof *y);
      else NAME(along)(&taps[2], x + first * width, y);
      continue;
    }
    for (int64_t r = done > first ? done : first; r < first + count; r++)
      NAME(along)(&taps[2], x + r * width, ring + r % vertical->most * out_width);
    if (done < first + count) done = first + count;
    NAME(across)
    (taps[1].weight + vertical->start[o], count, ring, first, vertical->most > 0 ? vertical->most : 1, out_width,
     out_width, y);
  }
}

static void NAME(planes)(const job *job, const NAME(taps) * taps, int64_t begin, int64_t end, real *buf)
{
  const axis *depth = taps[0].axis;
  int64_t in_size = job->in_size[1] * job->in_size[2], out = taps[1].axis->outputs * taps[2].axis->outputs;
  real *ring = buf + (depth->same ? 0 : (depth->most > 0 ? depth->most : 1) * out);
  for (int64_t i = begin; i < end; i++) {
    const real *x = (const real *)job->input.p + i * job->in_size[0] * in_size;
    real *y = (real *)job->output.p + i * depth->outputs * out;
    int64_t done = 0;
    if (depth->same) {
      for (int64_t z = 0; z < depth->outputs; z++) NAME(plane)(job, taps, x + z * in_size, y + z * out, ring);
      continue;
    }
    for (int64_t o = 0; o < depth->outputs; o++, y += out) {
      int64_t first = depth->first[o], count = depth->start[o + 1] - depth->start[o];
      for (int64_t z = done > first ? done : first; z < first + count; z++)
        NAME(plane)(job, taps, x + z * in_size, buf + z % depth->most * out, ring);
      if (done < first + count) done = first + count;
      NAME(across)(taps[0].weight + depth->start[o], count, buf, first, depth->most > 0 ? depth->most : 1, out, out, y);
    }
  }
}

/* Channels innermost: pixel by pixel of output, all its taps */
AMP_CLONES_OF(real) static void NAME(axpy)(real *restrict y, const real *restrict x, real w, int64_t count)
{
  for (int64_t j = 0; j < count; j++) y[j] += w * x[j];
}
AMP_CLONES_OF(real)
static void NAME(four)(real *restrict y, const real *a, const real *b, const real *c, const real *d, const real *weight,
                       int64_t count)
{
  real e = weight[0], f = weight[1], g = weight[2], h = weight[3];
  for (int64_t j = 0; j < count; j++) y[j] = (e * a[j] + f * b[j]) + (g * c[j] + h * d[j]);
}

static void NAME(pixels)(const job *job, const NAME(taps) * taps, int64_t begin, int64_t end)
{
  const axis *depth = taps[0].axis, *vertical = taps[1].axis, *horizontal = taps[2].axis;
  int64_t channels = job->channels, width = job->in_size[2] * channels, plane = job->in_size[1] * width;
  for (int64_t i = begin; i < end; i++) { /* rows of output */
    int64_t out_z = i / vertical->outputs % depth->outputs, out_y = i % vertical->outputs;
    const real *x = (const real *)job->input.p + i / vertical->outputs / depth->outputs * job->in_size[0] * plane;
    real *y = (real *)job->output.p + i * horizontal->outputs * channels;
    for (int64_t out_x = 0; out_x < horizontal->outputs; out_x++, y += channels) {
      int64_t nz = depth->start[out_z + 1] - depth->start[out_z],
              ny = vertical->start[out_y + 1] - vertical->start[out_y],
              nx = horizontal->start[out_x + 1] - horizontal->start[out_x];
      const real *wz = taps[0].weight + depth->start[out_z], *wy = taps[1].weight + vertical->start[out_y],
                 *wx = taps[2].weight + horizontal->start[out_x];
      const real *r
          = x + depth->first[out_z] * plane + vertical->first[out_y] * width + horizontal->first[out_x] * channels;
      if (nz == 1 && ny == 1 && nx == 1 && wz[0] * wy[0] * wx[0] == 1) {
        memcpy(y, r, (size_t)channels * sizeof *y);
        continue;
      }
      if (nz == 1 && ny == 2 && nx == 2) {
        real a = wz[0] * wy[0], b = wz[0] * wy[1], u[4] = { a * wx[0], a * wx[1], b * wx[0], b * wx[1] };
        NAME(four)(y, r, r + channels, r + width, r + width + channels, u, channels);
        continue;
      }
      memset(y, 0, (size_t)channels * sizeof *y);
      for (int64_t z = 0; z < nz; z++)
        for (int64_t p = 0; p < ny; p++)
          for (int64_t q = 0; q < nx; q++)
            NAME(axpy)(y, r + z * plane + p * width + q * channels, wz[z] * wy[p] * wx[q], channels);
    }
  }
}

static void NAME(run)(const job *job, int64_t begin, int64_t end, char *buf)
{
  const NAME(taps) *taps = job->taps;
  if (job->last) NAME(pixels)(job, taps, begin, end);
  else NAME(planes)(job, taps, begin, end, (real *)buf);
}
