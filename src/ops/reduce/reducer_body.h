/*
** ops/reduce/reducer_body.h: the loops of one reducer. The includer defines REDUCER, a list of
**
**   the reducer's name: it is amp__fold_NAME; what makes copies of a loop for each instruction set;
**   the type of elements and lanes; that of accumulators; the number of lanes of a row; the neutral element;
**   step(a, v, m), which takes an element v with parameter m; join(a, b) of two accumulations;
**   NO_PARAM or COLUMN_PARAM (a parameter a column); classes of elements and of accumulators;
**   whether columns take one row at a time, because the step is long, and not four;
**   BY_VECTORS or BY_ITEMS: how the lanes of a row take their elements; the step of vectors (ops/reduce/reducers.c).
*/
#define PICK_(which, ...) which(__VA_ARGS__)
#define PICK(which, ...) PICK_(which, __VA_ARGS__)
#define ITEM_name(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) name
#define ITEM_clones(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) clones
#define ITEM_type(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) type
#define ITEM_sum(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) sum
#define ITEM_lanes(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) lanes
#define ITEM_start(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) start
#define ITEM_step(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) step
#define ITEM_join(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) join
#define ITEM_param(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) param
#define ITEM_cls(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) cls
#define ITEM_sum_cls(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) \
  sum_cls
#define ITEM_one_row(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) \
  one_row
#define ITEM_way(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) way
#define ITEM_vector(name, clones, type, sum, lanes, start, step, join, param, cls, sum_cls, one_row, way, vector) vector
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define NAME(part) GLUE(PICK(ITEM_name, REDUCER), _##part)
#define FOLD GLUE(amp__fold_, PICK(ITEM_name, REDUCER))
#define CLONES PICK(ITEM_clones, REDUCER)
#define real PICK(ITEM_type, REDUCER)
#define wide PICK(ITEM_sum, REDUCER)
#define LANES PICK(ITEM_lanes, REDUCER)
#define START PICK(ITEM_start, REDUCER)
#define STEP PICK(ITEM_step, REDUCER)
#define JOIN PICK(ITEM_join, REDUCER)
#define PARAM PICK(ITEM_param, REDUCER)
#define CLASS PICK(ITEM_cls, REDUCER)
#define WIDE_CLASS PICK(ITEM_sum_cls, REDUCER)
#define ONE_ROW PICK(ITEM_one_row, REDUCER)
#define TAKE_ROUNDS PICK(ITEM_way, REDUCER)
#define VECTOR_STEP PICK(ITEM_vector, REDUCER)

typedef real NAME(vector) __attribute__((vector_size(32), aligned(sizeof(real)), may_alias));

static CLONES void NAME(row)(int64_t count, const void *x_, const void *param, void *acc)
{
  const real *x = x_;
  const real m = param ? *(const real *)param : (real)0;
  (void)m;
  real l[LANES], r = START;
  int64_t i = 0;
  if (count > 24) { /* what is left after whole rounds goes into the first lanes: no chain of dependent steps */
    TAKE_ROUNDS(NAME(vector), VECTOR_STEP);
    const int left = (int)(count - i);
    AMP_IVDEP
    for (int j = 0; j < left; j++) {
      const real v = x[i + j];
      l[j] = STEP(l[j], v, m);
    }
    for (int w = LANES / 2; w >= 1; w /= 2)
      for (int j = 0; j < w; j++) l[j] = JOIN(l[j], l[j + w]);
    r = l[0];
  } else
    for (; i < count; i++) {
      const real v = x[i];
      r = STEP(r, v, m);
    }
  *(wide *)acc = JOIN(*(wide *)acc, (wide)r);
}

static CLONES void NAME(cols)(int64_t count, const void *x_, int64_t stride, int rows, const void *param, void *lane)
{
  const real *x = x_;
  real *l = lane;
  const real *p = param;
  (void)p;
  int k = 0;
  for (; !ONE_ROW && k + 4 <= rows; k += 4, x += 4 * stride) AMP_IVDEP
  for (int64_t j = 0; j < count; j++) {
    const real v0 = x[j], v1 = x[j + stride], v2 = x[j + 2 * stride], v3 = x[j + 3 * stride], m = PARAM(p, j);
    (void)m;
    real a = STEP(l[j], v0, m);
    a = STEP(a, v1, m);
    a = STEP(a, v2, m);
    l[j] = STEP(a, v3, m);
  }
  for (; k < rows; k++, x += stride) AMP_IVDEP
  for (int64_t j = 0; j < count; j++) {
    const real v = x[j], m = PARAM(p, j);
    (void)m;
    l[j] = STEP(l[j], v, m);
  }
}

static void NAME(init)(int64_t count, void *lane, void *acc)
{
  if (lane)
    for (int64_t j = 0; j < count; j++) ((real *)lane)[j] = START;
  if (acc)
    for (int64_t j = 0; j < count; j++) ((wide *)acc)[j] = START;
}

static void NAME(fold)(int64_t count, const void *lane, void *acc)
{
  for (int64_t j = 0; j < count; j++) ((wide *)acc)[j] = JOIN(((wide *)acc)[j], (wide)((const real *)lane)[j]);
}

static void NAME(join)(int64_t count, const void *from, void *acc)
{
  for (int64_t j = 0; j < count; j++) ((wide *)acc)[j] = JOIN(((wide *)acc)[j], ((const wide *)from)[j]);
}

const amp_reducer FOLD = { NAME(row), NAME(cols), NAME(init), NAME(fold), NAME(join), CLASS, WIDE_CLASS, 1 };

#undef PICK_
#undef PICK
#undef ITEM_name
#undef ITEM_clones
#undef ITEM_type
#undef ITEM_sum
#undef ITEM_lanes
#undef ITEM_start
#undef ITEM_step
#undef ITEM_join
#undef ITEM_param
#undef ITEM_cls
#undef ITEM_sum_cls
#undef ITEM_one_row
#undef ITEM_way
#undef ITEM_vector
#undef GLUE_
#undef GLUE
#undef NAME
#undef FOLD
#undef CLONES
#undef real
#undef wide
#undef LANES
#undef START
#undef STEP
#undef JOIN
#undef PARAM
#undef CLASS
#undef WIDE_CLASS
#undef ONE_ROW
#undef TAKE_ROUNDS
#undef VECTOR_STEP
#undef REDUCER
