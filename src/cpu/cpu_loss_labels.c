/*
** cpu_loss_labels.c: multilabel_margin_loss and its backward row. A row of target
** lists the row's labels, from 1, up to the first number under 1; each pair of
** a label and a class that is none gives max(0, 1 - x[label] + x[class]) / C.
** A pair whose value is not above 0 has no slope.
*/
#include "cpu_nn.h"

enum { NONE, MEAN, SUM };

typedef struct job {
  int64_t rows, classes;
  amp__nn_view x, dx;
  const amp_tensor *target, *grad, *out;
  int64_t reduction;
  double scale;
  double *x64, *d64;                   /* one row */
  uint8_t *is;                         /* class is a label */
  int64_t *list;
} job;

/* The row's labels from 0, how many */
static int64_t labels(const job *k, int64_t row) {
  const amp_tensor *t = k->target;
  int64_t base = t->ndim > 1 ? row * t->stride[0] : 0, n = 0;
  memset(k->is, 0, (size_t)k->classes);
  for (; n < k->classes; n++) {
    int64_t y = amp__nn_label(amp__data(t), t->dtype, base + n * t->stride[t->ndim - 1]);
    if (y < 1) break;
    k->is[y - 1] = 1;
    k->list[n] = y - 1;
  }
  return n;
}

static int check(const job *k, int arg) {
  const amp_tensor *t = k->target;
  for (int64_t r = 0; r < k->rows; r++)
    for (int64_t i = 0; i < k->classes; i++) {
      int64_t y = amp__nn_label(amp__data(t), t->dtype, (t->ndim > 1 ? r * t->stride[0] : 0) + i * t->stride[t->ndim - 1]);
      if (y < 1) break;
      if (y > k->classes)
        return amp__fail_arg(AMP_E_INDEX, arg, "label %lld at row %lld, place %lld, expected 1..%lld, or 0 at the end", (long long)y, (long long)r + 1, (long long)i + 1, (long long)k->classes);
    }
  return 0;
}

static void load(const job *k, const amp_tensor *x, int64_t row) {
  amp__nn_load_f64(k->x64, amp__nn_at(x, x->ndim > 1 ? row * x->stride[0] : 0), x->dtype, x->stride[x->ndim - 1], k->classes);
}

/* One row's loss; with d also its slopes */
static double margins(const job *k, int64_t row, double *d) {
  int64_t n = labels(k, row);
  double sum = 0;
  for (int64_t j = 0; j < n; j++) {
    double at = 1 - k->x64[k->list[j]], hits = 0;
    for (int64_t i = 0; i < k->classes; i++) {
      double z = at + k->x64[i];
      bool on = !k->is[i] && !(z <= 0); /* NaN goes on */
      sum += on ? z : 0;
      if (d) { d[i] += on; hits += on; }
    }
    if (d) d[k->list[j]] -= hits;
  }
  return sum / (double)k->classes;
}

static bool open_job(job *k, amp__nn_scratch *s, void *own, size_t bytes, const amp_tensor *x, const amp_tensor *target, int64_t reduction) {
  k->classes = x->size[x->ndim - 1];
  k->rows = x->ndim > 1 ? x->size[0] : 1;
  k->target = target;
  k->reduction = reduction;
  size_t n = (size_t)k->classes;
  if (!amp__nn_lend(s, own, bytes, n * (2 * sizeof(double) + sizeof(int64_t) + 1))) return false;
  k->x64 = s->p;
  k->d64 = k->x64 + n;
  k->list = (int64_t *)(k->d64 + n);
  k->is = (uint8_t *)(k->list + n);
  return true;
}

static void *element(const amp_tensor *t, int64_t row) {
  return (char *)amp__data(t) + (t->ndim ? row * t->stride[0] : 0) * amp__dtype_size[t->dtype];
}

int amp__cpu_multilabel_margin_loss(amp_call *c) {
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  job k = {0};
  const amp_tensor *x = c->in[0], *out = c->out[0];
  double sum = 0;
  if (!open_job(&k, &s, own, sizeof own, x, c->in[1], c->a[0].i)) return AMP_E_MEMORY;
  int rc = check(&k, 2);
  for (int64_t r = 0; r < k.rows && rc == 0; r++) {
    load(&k, x, r);
    double l = margins(&k, r, NULL);
    if (k.reduction == NONE) amp__nn_store_f64(element(out, r), out->dtype, 1, &l, 1);
    sum += l;
  }
  if (k.reduction == MEAN) sum /= (double)k.rows;
  if (k.reduction != NONE && rc == 0) amp__nn_store_f64(amp__data(out), out->dtype, 1, &sum, 1);
  amp__nn_give(&s);
  return rc;
}

/* grad input target */
int amp__cpu_multilabel_margin_loss_backward(amp_call *c) {
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  job k = {0};
  const amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0];
  if (!open_job(&k, &s, own, sizeof own, x, c->in[2], c->a[0].i)) return AMP_E_MEMORY;
  int rc = check(&k, 3);
  for (int64_t r = 0; r < k.rows && rc == 0; r++) {
    double q;
    amp__nn_load_f64(&q, k.reduction == NONE ? element(g, r) : amp__data(g), g->dtype, 1, 1);
    q /= (double)k.classes * (k.reduction == MEAN ? (double)k.rows : 1);
    load(&k, x, r);
    memset(k.d64, 0, (size_t)k.classes * sizeof(double));
    margins(&k, r, k.d64);
    for (int64_t i = 0; i < k.classes; i++) k.d64[i] *= q;
    amp__nn_store_f64((char *)amp__data(y) + (y->ndim > 1 ? r * y->stride[0] : 0) * amp__dtype_size[y->dtype], y->dtype, y->stride[y->ndim - 1], k.d64, k.classes);
  }
  amp__nn_give(&s);
  return rc;
}
