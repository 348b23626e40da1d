/*
** ops/distance/distance_body.h: loops over pairs of rows, for one type (cpu/each_real.h).
*/

static void NAME(cdist)(const job *job, int64_t begin, int64_t end)
{
  for (int64_t j = 0; j < job->other_rows; j += LANE)
    for (int64_t i = begin; i < end; i++) NAME(distances)
  (job->kind, (const real *)job->first + i * job->features, (const real *)job->panels + j * job->features,
   job->features, (real)job->norm, (real *)job->out + i * job->other_rows + j, 0,
   job->other_rows - j < LANE ? job->other_rows - j : LANE);
}

static void NAME(pdist)(const job *job, int64_t begin, int64_t end)
{
  for (int64_t i = begin; i < end; i++) {
    real *out = (real *)job->out + first_pair(job->other_rows, i);
    for (int64_t j = (i + 1) / LANE * LANE; j < job->other_rows; j += LANE) {
      int64_t from = i + 1 > j ? i + 1 - j : 0, n = job->other_rows - j < LANE ? job->other_rows - j : LANE;
      if (from >= n) continue;
      NAME(distances)
      (job->kind, (const real *)job->first + i * job->features, (const real *)job->panels + j * job->features,
       job->features, (real)job->norm, out + j + from - i - 1, from, n);
    }
  }
}

CLONES static void NAME(cdist_back)(const job *job, int64_t begin, int64_t end, bool second)
{
  const real *x = second ? job->second : job->first, *z = second ? job->first : job->second, *g = job->grad,
             *dist = job->dist;
  int64_t others = second ? job->rows : job->other_rows;
  for (int64_t i = begin; i < end; i++) {
    real *x_grad = (real *)(second ? job->other : job->out) + i * job->features;
    for (int64_t f = 0; f < job->features; f++) x_grad[f] = 0;
    for (int64_t j = 0; j < others; j++) {
      int64_t at = second ? j * job->other_rows + i : i * job->other_rows + j;
      real factor = NAME(share)(job->kind, g[at], dist[at], (real)job->norm);
      if (factor != 0) NAME(pull)
      (job->kind, x_grad, x + i * job->features, z + j * job->features, job->features, factor, dist[at],
       (real)job->norm);
    }
  }
}

CLONES static void NAME(pdist_back)(const job *job, int64_t begin, int64_t end)
{
  const real *x = job->first, *g = job->grad, *dist = job->dist;
  for (int64_t i = begin; i < end; i++) {
    real *x_grad = (real *)job->out + i * job->features;
    for (int64_t f = 0; f < job->features; f++) x_grad[f] = 0;
    for (int64_t j = 0; j < job->other_rows; j++) {
      if (i == j) continue;
      int64_t at = i < j ? first_pair(job->other_rows, i) + j - i - 1 : first_pair(job->other_rows, j) + i - j - 1;
      real factor = NAME(share)(job->kind, g[at], dist[at], (real)job->norm);
      if (factor != 0) NAME(pull)
      (job->kind, x_grad, x + i * job->features, x + j * job->features, job->features, factor, dist[at],
       (real)job->norm);
    }
  }
}

/* products in out -> distances */
CLONES static int NAME(finish)(real *restrict out, int64_t count, real a, const double *restrict b)
{
  int near = 0;
  for (int64_t j = 0; j < count; j++) {
    real sum = a + (real)b[j], d = sum - 2 * out[j];
    near |= !(d > (real)0.02 * sum);
    out[j] = d;
  }
  return near;
}

CLONES static void NAME(root)(real *out, int64_t n)
{
  for (int64_t j = 0; j < n; j++) out[j] = SQRT(out[j]);
}

CLONES static real NAME(direct)(const real *x, const real *z, int64_t m)
{
  real s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t f = 0; f < m; f++) {
    real d = x[f] - z[f];
    s += d * d;
  }
  return s;
}

static void NAME(euclid)(const job *job, int64_t begin, int64_t end)
{
  for (int64_t i = begin; i < end; i++) {
    real *out = (real *)job->out + i * job->other_rows;
    if (NAME(finish)(out, job->other_rows, (real)job->first_norms[i], job->second_norms))
      for (int64_t j = 0; j < job->other_rows; j++)
        if (!(out[j] > (real)0.02 * ((real)job->first_norms[i] + (real)job->second_norms[j])))
          out[j] = NAME(direct)((const real *)job->first + i * job->features,
                                (const real *)job->second + j * job->features, job->features);
    NAME(root)(out, job->other_rows);
  }
}
