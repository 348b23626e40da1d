/*
** ops/order/order_body.h: what ops/order/order.c does with one row, over one kind of item
** (ops/order/sort.h). The includer defines ITEM, key_type, NAME(x), MAKE(key, place),
** AT(item), KEY(item) and CLONES; all is undefined at the end.
*/

static CLONES bool NAME(any_)(const key_type *k, key_type limit, int n)
{
  int any = 0;
  for (int i = 0; i < n; i++) any |= k[i] <= limit;
  return any;
}

static void NAME(load_)(const order *task, const char *data, ITEM *item)
{
  key_type key[AMP_CHUNK];
  const int element_size = amp__dtype_size[task->dtype];
  for (int64_t at = 0; at < task->length; at += AMP_CHUNK) {
    const int64_t m = task->length - at < AMP_CHUNK ? task->length - at : AMP_CHUNK;
    NAME(amp__keys)(key, task->dtype, data + at * task->step * element_size, task->step, m, task->flip);
    for (int64_t i = 0; i < m; i++) item[at + i] = MAKE(key[i], at + i);
  }
}

/* The k first items of a row, which is never whole in memory: what beats the k-th best so far is kept. */
static void NAME(best_)(const order *task, const char *data, ITEM *item, ITEM *spare)
{
  enum { GROUP = 64 };
  key_type key[AMP_CHUNK], limit = ~(key_type)0;
  const int element_size = amp__dtype_size[task->dtype];
  int64_t count = 0;
  for (int64_t at = 0; at < task->length; at += AMP_CHUNK) {
    const int64_t m = task->length - at < AMP_CHUNK ? task->length - at : AMP_CHUNK;
    NAME(amp__keys)(key, task->dtype, data + at * task->step * element_size, task->step, m, task->flip);
    AMP_ASSERT(count + m <= task->room);
    for (int64_t g = 0; g < m; g += GROUP) {
      const int gn = m - g < GROUP ? (int)(m - g) : GROUP;
      if (!NAME(any_)(key + g, limit, gn)) continue;
      for (int64_t i = g; i < g + gn; i++) {
        item[count] = MAKE(key[i], at + i);
        count += key[i] <= limit;
      }
    }
    if (count + AMP_CHUNK > task->room) {
      NAME(amp__select)(item, spare, count, task->kth - 1);
      count = task->kth;
      limit = KEY(item[task->kth - 1]);
      if (limit > 0) limit--; /* equals that come later lose */
      else break;
    }
  }
  if (count > task->kth) NAME(amp__select)(item, spare, count, task->kth - 1);
}

/* Which items of the row at `data` are the result: *first and how many */
static int64_t NAME(row_)(const order *task, const char *data, ITEM *item, ITEM *spare, ITEM **first)
{
  const int64_t n = task->length;
  int64_t k = task->kth;
  *first = item;
  if (task->what == TOPK && task->lean) NAME(best_)(task, data, item, spare);
  else NAME(load_)(task, data, item);
  switch (task->what) {
  case SORT: NAME(amp__sort)(item, spare, n); return n;
  case TOPK:
    if (!task->lean && task->sorted && k > n / 4) {
      NAME(amp__sort)(item, spare, n);
      return k;
    }
    if (!task->lean && k < n) NAME(amp__select)(item, spare, n, k - 1);
    if (task->sorted) NAME(amp__order)(item, spare, k);
    return k;
  case MODE: {
    int64_t most = 0, run = 0;
    NAME(amp__sort)(item, spare, n);
    for (int64_t i = 0; i < n; i++) {
      run = i > 0 && KEY(item[i]) == KEY(item[i - 1]) ? run + 1 : 1;
      if (run > most) {
        most = run;
        *first = item + i;
      }
    }
    return 1;
  }
  case MEDIAN:
  case NANMEDIAN: {
    int64_t nan = 0;
    if (amp__is_float(task->dtype))
      for (int64_t i = 0; i < n; i++) nan += KEY(item[i]) == ~(key_type)0;
    k = task->what == MEDIAN && nan > 0 ? n - nan : nan == n ? 0 : (n - nan - 1) / 2;
  } /* fall through */
  default:
    NAME(amp__select)(item, spare, n, k);
    *first = item + k;
    return 1;
  }
}

static void NAME(places_)(const order *task, int64_t *out, const ITEM *item, int64_t count)
{
  if (task->index_step == 1)
    for (int64_t i = 0; i < count; i++) out[i] = AT(item[i]) + 1;
  else
    for (int64_t i = 0; i < count; i++) out[i * task->index_step] = AT(item[i]) + 1;
}

static void NAME(values_)(const order *task, char *out, const char *data, const ITEM *item, int64_t count)
{
  const int64_t data_step = task->step, out_step = task->value_step;
  switch (amp__dtype_size[task->dtype]) {
  case 1:
    for (int64_t i = 0; i < count; i++)
      ((uint8_t *)out)[i * out_step] = ((const uint8_t *)data)[AT(item[i]) * data_step];
    break;
  case 2:
    for (int64_t i = 0; i < count; i++)
      ((uint16_t *)out)[i * out_step] = ((const uint16_t *)data)[AT(item[i]) * data_step];
    break;
  case 4:
    for (int64_t i = 0; i < count; i++)
      ((uint32_t *)out)[i * out_step] = ((const uint32_t *)data)[AT(item[i]) * data_step];
    break;
  default:
    for (int64_t i = 0; i < count; i++)
      ((uint64_t *)out)[i * out_step] = ((const uint64_t *)data)[AT(item[i]) * data_step];
  }
}

#undef ITEM
#undef key_type
#undef NAME
#undef MAKE
#undef AT
#undef KEY
#undef CLONES
