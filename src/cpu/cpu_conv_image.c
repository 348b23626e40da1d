/*
** cpu_conv_image.c: padded copies of parts of images (cpu_conv_image.h): which
** phases of the stride taps read, how large a part is, and the copying.
*/
#include "cpu_conv_image.h"

/* -- Plan ----------------------------------------------------------------------------- */

enum { IMAGE = 384 << 10 };            /* bytes of a part's copy that are aimed at: a third of a usual L2 cache */

static int64_t floor_div(int64_t a, int64_t b) { int64_t q = a / b; return q * b > a ? q - 1 : q; }

/* A tap's place over the stride, and its phase */
static int64_t split(const conv_direct *d, int64_t t, int64_t *q) {
  const int64_t at[3] = { d->tap[t].d, d->tap[t].h, d->tap[t].w };
  int64_t phase = 0;
  for (int i = 0; i < 3; i++) {
    q[i] = floor_div(at[i], d->step[i]);
    phase = phase * d->step[i] + at[i] - q[i] * d->step[i];
  }
  return phase;
}

/* Phases, least places, reaches. false: too many phases */
static bool survey(conv_image_plan *p) {
  const conv_direct *d = p->d;
  bool used[CONV_PHASES] = { false };
  int64_t q[3], phases = d->step[0] * d->step[1] * d->step[2];
  if (d->step[0] > CONV_PHASES || d->step[1] > CONV_PHASES || d->step[2] > CONV_PHASES || phases > CONV_PHASES) return false;
  for (int64_t t = 0; t < d->taps; t++) {
    used[split(d, t, q)] = true;
    for (int i = 0; i < 3; i++) {
      if (t == 0) { p->low[i] = q[i]; p->reach[i] = 0; }
      else if (q[i] < p->low[i]) { p->reach[i] += p->low[i] - q[i]; p->low[i] = q[i]; }
      else if (q[i] - p->low[i] > p->reach[i]) p->reach[i] = q[i] - p->low[i];
    }
  }
  for (int64_t f = 0; f < phases; f++) if (used[f]) p->phase[p->phases++] = (int8_t)f;
  return true;
}

static void size_parts(conv_image_plan *p) {
  const conv_direct *d = p->d;
  for (int i = 0; i < 3; i++) p->part[i] = d->out[i];
  for (;;) {
    int64_t n = p->lines * p->phases * p->bytes;
    for (int i = 0; i < 3; i++) n *= p->part[i] + p->reach[i];
    if (n <= IMAGE) break;
    if (p->part[0] > 1 && p->part[0] > p->reach[0]) p->part[0] = (p->part[0] + 1) / 2;
    else if (p->part[1] > 4 && p->part[1] > p->reach[1]) p->part[1] = (p->part[1] + 1) / 2;
    else if (p->part[2] > 256 && p->part[2] > 4 * p->reach[2]) p->part[2] = (p->part[2] + 1) / 2;
    else break;
  }
  p->plane = 1;
  for (int i = 0; i < 3; i++) {
    p->parts[i] = (d->out[i] + p->part[i] - 1) / p->part[i];
    p->len[i] = p->part[i] + p->reach[i];
    p->plane *= p->len[i];
  }
}

bool conv_plan(conv_image_plan *p, const conv_direct *d, int kind) {
  *p = (conv_image_plan){.d = d, .kind = kind, .bytes = kind == CONV_HALVES ? 2 : 4};
  p->lines = kind == CONV_PAIRS ? (d->channels + 1) / 2 : d->channels;
  p->k = p->lines * d->taps;
  if (!survey(p)) return false;
  size_parts(p);
  p->pixels = (p->part[1] - 1) * p->len[2] + p->part[2];
  p->units = d->images * d->groups * p->parts[0] * p->parts[1] * p->parts[2];
  int64_t all = p->lines * p->phases * p->plane;
  p->image_bytes = ((size_t)(all + CONV_SLACK) * p->bytes + 63) / 64 * 64;
  return all <= INT32_MAX / 4;
}

void conv_offsets(const conv_image_plan *p, int32_t *off) {
  for (int64_t c = 0, i = 0; c < p->lines; c++)
    for (int64_t t = 0; t < p->d->taps; t++, i++) {
      int64_t q[3], phase = split(p->d, t, q), f = 0;
      while (p->phase[f] != phase) f++;
      for (int k = 0; k < 3; k++) q[k] -= p->low[k];
      off[i] = (int32_t)((c * p->phases + f) * p->plane + (q[0] * p->len[1] + q[1]) * p->len[2] + q[2]);
    }
}

conv_unit conv_unit_of(const conv_image_plan *p, int64_t i) {
  int64_t per = p->parts[0] * p->parts[1] * p->parts[2], q = i % per, groups = p->d->groups;
  conv_unit u = { i / (groups * per), i / per % groups, {0}, {0} };
  u.at[0] = q / (p->parts[1] * p->parts[2]) * p->part[0];
  u.at[1] = q / p->parts[2] % p->parts[1] * p->part[1];
  u.at[2] = q % p->parts[2] * p->part[2];
  for (int k = 0; k < 3; k++) u.size[k] = p->d->out[k] - u.at[k] < p->part[k] ? p->d->out[k] - u.at[k] : p->part[k];
  return u;
}

/* -- A part ------------------------------------------------------------------------- */

/* Places [lo, hi) of n that i * step + first puts inside a dimension of `size` */
static void inside(int64_t n, int64_t first, int64_t step, int64_t size, int64_t *lo, int64_t *hi) {
  *lo = first < 0 ? (-first + step - 1) / step : 0;
  *hi = first >= size ? 0 : (size - first + step - 1) / step;
  if (*hi > n) *hi = n;
  if (*lo > *hi) *lo = *hi;
}

AMP_CLONES static void interleave(uint16_t *d, const uint16_t *a, const uint16_t *b, int64_t step, int64_t n) {
  if (step == 1) for (int64_t i = 0; i < n; i++) { d[2 * i] = a[i]; d[2 * i + 1] = b[i]; }
  else for (int64_t i = 0; i < n; i++) { d[2 * i] = a[i * step]; d[2 * i + 1] = b[i * step]; }
}

static void copy_line(const conv_image_plan *p, char *to, const char *from, int64_t step, int64_t n, bool second) {
  const conv_direct *d = p->d;
  if (n <= 0) return;
  if (p->kind == CONV_HALVES) amp__move(2, to, 1, from, step, n);
  else if (p->kind == CONV_PAIRS && second) interleave((uint16_t *)to, (const uint16_t *)from, (const uint16_t *)from + d->sc, step, n);
  else if (p->kind == CONV_PAIRS) for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = ((const uint16_t *)from)[i * step];
  else if (d->sdtype == AMP_FLOAT32 && step == 1) memcpy(to, from, (size_t)n * 4);
  else amp__load(AMP_C_F32, to, d->sdtype, from, step, n);
}

void conv_fill(const conv_image_plan *p, const conv_unit *u, char *copy) {
  const conv_direct *d = p->d;
  int64_t bytes = amp__dtype_size[d->sdtype], w = p->len[2], e = p->bytes, all = p->lines * p->phases * p->plane;
  const char *src = (const char *)d->src + (u->n * d->sn + u->g * d->channels * d->sc) * bytes;
  memset(copy + all * e, 0, p->image_bytes - (size_t)(all * e));
  for (int64_t c = 0; c < p->lines; c++)
    for (int64_t f = 0; f < p->phases; f++) {
      int64_t h = p->phase[f], r[3] = { h / (d->step[1] * d->step[2]), h / d->step[2] % d->step[1], h % d->step[2] }, first[3], lo, hi;
      char *to = copy + (c * p->phases + f) * p->plane * e;
      bool second = p->kind == CONV_PAIRS && 2 * c + 1 < d->channels;
      const char *plane = src + (p->kind == CONV_PAIRS ? 2 * c : c) * d->sc * bytes;
      for (int i = 0; i < 3; i++) first[i] = (u->at[i] + p->low[i]) * d->step[i] + r[i];
      inside(w, first[2], d->step[2], d->in[2], &lo, &hi);
      for (int64_t l = 0; l < p->len[0] * p->len[1]; l++, to += w * e) {
        int64_t z = first[0] + l / p->len[1] * d->step[0], y = first[1] + l % p->len[1] * d->step[1];
        if (z < 0 || z >= d->in[0] || y < 0 || y >= d->in[1] || hi == lo) { memset(to, 0, (size_t)(w * e)); continue; }
        const char *from = plane + (z * d->ss[0] + y * d->ss[1] + (first[2] + lo * d->step[2]) * d->ss[2]) * bytes;
        if (lo > 0) memset(to, 0, (size_t)(lo * e));
        copy_line(p, to + lo * e, from, d->step[2] * d->ss[2], hi - lo, second);
        if (hi < w) memset(to + hi * e, 0, (size_t)((w - hi) * e));
      }
    }
}
