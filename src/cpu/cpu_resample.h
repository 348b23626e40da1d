/*
** cpu_resample.h: loops of resampling over the computing type T, names by
** N(name); included by cpu_resample.c once a type. Tables of taps are rational
** in double and rounded once here.
*/

/* A dimension's taps in T. If flat > 0 every output has that many, one after the other in `at` and `w` (k-th of output o
** at [k * n + o]): a tap is split in halves where there are fewer, so that loops are the same for all. */
typedef struct { const axis *a; T *w; int32_t *at; T *fw; int flat; } N(taps);

static void N(axis)(N(taps) *t, const axis *a, char **mem) {
  int64_t total = a->ptr[a->n];
  t->a = a;
  t->w = (T *)*mem;
  *mem += ((size_t)total * sizeof(T) + 63) / 64 * 64;
  for (int64_t i = 0; i < total; i++) t->w[i] = (T)a->w[i];
  t->flat = a->least > 0 && a->most <= MAX_FLAT ? (int)a->most : 0;
  if (!t->flat) return;
  t->fw = (T *)*mem;
  *mem += ((size_t)(a->n * a->most) * sizeof(T) + 63) / 64 * 64;
  t->at = (int32_t *)*mem;
  *mem += ((size_t)(a->n * a->most) * sizeof(int32_t) + 63) / 64 * 64;
  for (int64_t o = 0; o < a->n; o++) {
    int64_t count = a->ptr[o + 1] - a->ptr[o], extra = a->most - count, k = 0;
    T rest = t->w[a->ptr[o]];
    for (; k < extra; k++) {
      rest /= 2;
      t->fw[k * a->n + o] = rest;
      t->at[k * a->n + o] = (int32_t)a->first[o];
    }
    for (int64_t i = 0; i < count; i++, k++) {
      t->fw[k * a->n + o] = i == 0 ? rest : t->w[a->ptr[o] + i];
      t->at[k * a->n + o] = (int32_t)(a->first[o] + i);
    }
  }
}

/* y[o] = sum of w * x over the taps of o, along a row */
AMP_CLONES_OF(T) static void N(along)(const N(taps) *t, const T *restrict x, T *restrict y) {
  const axis *a = t->a;
  int64_t n = a->n;
  const T *w = t->fw;
  const int32_t *at = t->at;
  if (a->plain && t->flat == 1) for (int64_t o = 0; o < n; o++) y[o] = x[at[o]];
  else if (t->flat == 2) for (int64_t o = 0; o < n; o++) y[o] = w[o] * x[at[o]] + w[n + o] * x[at[n + o]];
  else if (t->flat == 4) for (int64_t o = 0; o < n; o++) y[o] = (w[o] * x[at[o]] + w[n + o] * x[at[n + o]]) + (w[2 * n + o] * x[at[2 * n + o]] + w[3 * n + o] * x[at[3 * n + o]]);
  else if (t->flat)
    for (int k = 0; k < t->flat; k++, w += n, at += n) {
      if (k == 0) for (int64_t o = 0; o < n; o++) y[o] = w[o] * x[at[o]];
      else for (int64_t o = 0; o < n; o++) y[o] += w[o] * x[at[o]];
    }
  else
    for (int64_t o = 0; o < n; o++) {
      const T *v = x + a->first[o], *u = t->w + a->ptr[o];
      T s = 0;
      for (int64_t k = 0, m = a->ptr[o + 1] - a->ptr[o]; k < m; k++) s += u[k] * v[k];
      y[o] = s;
    }
}

/* y = sum of w[k] * row k, n elements each; row k at rows + (first + k) % ring * step */
AMP_CLONES_OF(T) static void N(across)(const T *w, int64_t count, const T *rows, int64_t first, int64_t ring, int64_t step, int64_t n, T *restrict y) {
#define ROW(k) (rows + (first + (k)) % ring * step)
  if (count == 0) { memset(y, 0, (size_t)n * sizeof *y); return; }
  if (count == 1 && w[0] == 1) { memcpy(y, ROW(0), (size_t)n * sizeof *y); return; }
  int64_t k = 0;
  if (count >= 4) {
    const T *a = ROW(0), *b = ROW(1), *c = ROW(2), *d = ROW(3);
    T e = w[0], f = w[1], g = w[2], h = w[3];
    for (int64_t j = 0; j < n; j++) y[j] = (e * a[j] + f * b[j]) + (g * c[j] + h * d[j]);
    k = 4;
  } else if (count >= 2) {
    const T *a = ROW(0), *b = ROW(1);
    T e = w[0], f = w[1];
    for (int64_t j = 0; j < n; j++) y[j] = e * a[j] + f * b[j];
    k = 2;
  } else {
    const T *a = ROW(0);
    T e = w[0];
    for (int64_t j = 0; j < n; j++) y[j] = e * a[j];
    k = 1;
  }
  for (; k < count; k++) {
    const T *a = ROW(k);
    T e = w[k];
    for (int64_t j = 0; j < n; j++) y[j] += e * a[j];
  }
#undef ROW
}

/* A plane of in[1] x in[2] at x; out[1] x out[2] to y. Rows resampled along wait in a ring till all that need them are made. */
static void N(plane)(const job *k, const N(taps) *t, const T *x, T *y, T *ring) {
  const axis *v = t[1].a, *h = t[2].a;
  int64_t w = k->in[2], ow = h->n, done = 0;
  for (int64_t o = 0; o < v->n; o++, y += ow) {
    int64_t first = v->first[o], count = v->ptr[o + 1] - v->ptr[o];
    if (h->same) { N(across)(t[1].w + v->ptr[o], count, x, first, INT64_MAX, w, ow, y); continue; }
    if (count == 1 && t[1].w[v->ptr[o]] == 1 && v->most == 1) {
      if (o > 0 && v->first[o - 1] == first && v->ptr[o] > v->ptr[o - 1]) memcpy(y, y - ow, (size_t)ow * sizeof *y);
      else N(along)(&t[2], x + first * w, y);
      continue;
    }
    for (int64_t r = done > first ? done : first; r < first + count; r++) N(along)(&t[2], x + r * w, ring + r % v->most * ow);
    if (done < first + count) done = first + count;
    N(across)(t[1].w + v->ptr[o], count, ring, first, v->most > 0 ? v->most : 1, ow, ow, y);
  }
}

static void N(planes)(const job *k, const N(taps) *t, int64_t begin, int64_t end, T *buf) {
  const axis *d = t[0].a;
  int64_t in = k->in[1] * k->in[2], out = t[1].a->n * t[2].a->n;
  T *ring = buf + (d->same ? 0 : (d->most > 0 ? d->most : 1) * out);
  for (int64_t i = begin; i < end; i++) {
    const T *x = (const T *)k->x.p + i * k->in[0] * in;
    T *y = (T *)k->y.p + i * d->n * out;
    int64_t done = 0;
    if (d->same) {
      for (int64_t z = 0; z < d->n; z++) N(plane)(k, t, x + z * in, y + z * out, ring);
      continue;
    }
    for (int64_t o = 0; o < d->n; o++, y += out) {
      int64_t first = d->first[o], count = d->ptr[o + 1] - d->ptr[o];
      for (int64_t z = done > first ? done : first; z < first + count; z++) N(plane)(k, t, x + z * in, buf + z % d->most * out, ring);
      if (done < first + count) done = first + count;
      N(across)(t[0].w + d->ptr[o], count, buf, first, d->most > 0 ? d->most : 1, out, out, y);
    }
  }
}

/* Channels innermost: pixel by pixel of output, all its taps */
AMP_CLONES_OF(T) static void N(axpy)(T *restrict y, const T *restrict x, T w, int64_t n) { for (int64_t j = 0; j < n; j++) y[j] += w * x[j]; }
AMP_CLONES_OF(T) static void N(four)(T *restrict y, const T *a, const T *b, const T *c, const T *d, const T *w, int64_t n) {
  T e = w[0], f = w[1], g = w[2], h = w[3];
  for (int64_t j = 0; j < n; j++) y[j] = (e * a[j] + f * b[j]) + (g * c[j] + h * d[j]);
}

static void N(pixels)(const job *k, const N(taps) *t, int64_t begin, int64_t end) {
  const axis *d = t[0].a, *v = t[1].a, *h = t[2].a;
  int64_t c = k->c, w = k->in[2] * c, plane = k->in[1] * w;
  for (int64_t i = begin; i < end; i++) { /* rows of output */
    int64_t oz = i / v->n % d->n, oy = i % v->n;
    const T *x = (const T *)k->x.p + i / v->n / d->n * k->in[0] * plane;
    T *y = (T *)k->y.p + i * h->n * c;
    for (int64_t ox = 0; ox < h->n; ox++, y += c) {
      int64_t nz = d->ptr[oz + 1] - d->ptr[oz], ny = v->ptr[oy + 1] - v->ptr[oy], nx = h->ptr[ox + 1] - h->ptr[ox];
      const T *wz = t[0].w + d->ptr[oz], *wy = t[1].w + v->ptr[oy], *wx = t[2].w + h->ptr[ox];
      const T *r = x + d->first[oz] * plane + v->first[oy] * w + h->first[ox] * c;
      if (nz == 1 && ny == 1 && nx == 1 && wz[0] * wy[0] * wx[0] == 1) { memcpy(y, r, (size_t)c * sizeof *y); continue; }
      if (nz == 1 && ny == 2 && nx == 2) {
        T a = wz[0] * wy[0], b = wz[0] * wy[1], u[4] = { a * wx[0], a * wx[1], b * wx[0], b * wx[1] };
        N(four)(y, r, r + c, r + w, r + w + c, u, c);
        continue;
      }
      memset(y, 0, (size_t)c * sizeof *y);
      for (int64_t z = 0; z < nz; z++)
        for (int64_t p = 0; p < ny; p++)
          for (int64_t q = 0; q < nx; q++) N(axpy)(y, r + z * plane + p * w + q * c, wz[z] * wy[p] * wx[q], c);
    }
  }
}

static void N(run)(const job *k, int64_t begin, int64_t end, char *buf) {
  const N(taps) *t = k->taps;
  if (k->last) N(pixels)(k, t, begin, end);
  else N(planes)(k, t, begin, end, (T *)buf);
}
