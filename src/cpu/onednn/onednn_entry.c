/*
** onednn_entry.c: a thread's table of primitives: making one, with memory objects and the
** moves between layouts, and running it (onednn_entry.h).
*/
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "base/workers.h"
#include "core.h"
#include "onednn_entry.h"

amp_kernel_fn dnn_plain[AMP_OP_COUNT];
int (*dnn_core_threads)(int64_t work);
const amp_core_api *dnn_core;
dnnl_engine_t dnn_engine;
pthread_mutex_t dnn_shared = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local dnn_cache *mine;
static _Thread_local dnnl_stream_t stream;
static pthread_key_t thread_key;
static bool holds; /* signals have to wait for this oneDNN */

/* -- The thread's table ---------------------------------------------------------- */

void dnn_entry_empty(dnn_entry *entry)
{
  for (int i = 0; i < entry->count; i++) {
    if (entry->operand[i].own && entry->operand[i].own != entry->operand[i].user)
      dnnl_memory_destroy(entry->operand[i].own);
    if (entry->operand[i].user) dnnl_memory_destroy(entry->operand[i].user);
    if (entry->operand[i].reorder) dnnl_primitive_destroy(entry->operand[i].reorder);
  }
  if (entry->scratch) dnnl_memory_destroy(entry->scratch);
  if (entry->prim) dnnl_primitive_destroy(entry->prim);
  entry->prim = NULL;
  entry->scratch = NULL;
  entry->scratch_bytes = 0;
  entry->count = 0;
  memset(entry->operand, 0, sizeof entry->operand);
}

static void clear(dnn_cache *cache)
{
  for (int i = 0; i < DNN_SLOTS; i++)
    for (dnn_entry *entry = cache->slot[i], *next; entry; entry = next) {
      next = entry->next;
      dnn_entry_empty(entry);
      free(entry);
    }
  memset(cache->slot, 0, sizeof cache->slot);
  cache->count = 0;
}

static void thread_ends(void *p)
{
  dnn_cache *cache = p;
  clear(cache);
  free(cache->mem);
  free(cache);
}

bool dnn_entries_start(void)
{
#ifdef __x86_64__
  const dnnl_version_t *version = dnnl_version();
  holds = version->major < 3 || (version->major == 3 && version->minor < 12);
#endif
  return pthread_key_create(&thread_key, thread_ends) == 0;
}

dnn_cache *dnn_table(void)
{
  if (mine) return mine;
  if (stream == NULL && dnnl_stream_create(&stream, dnn_engine, dnnl_stream_default_flags) != dnnl_success) return NULL;
  mine = calloc(1, sizeof *mine);
  if (mine) pthread_setspecific(thread_key, mine);
  return mine;
}

size_t dnn_hash(const int64_t *k)
{
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < k[0]; i++) h = (h ^ (uint64_t)k[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
  return h % DNN_SLOTS;
}

static void *memory(dnn_cache *cache, size_t bytes)
{
  if (bytes > cache->bytes) {
    void *p;
    if (posix_memalign(&p, 64, bytes + bytes / 4) != 0) return NULL;
    free(cache->mem);
    cache->mem = p;
    cache->bytes = bytes + bytes / 4;
  }
  return cache->mem;
}

/* -- Threads ------------------------------------------------------------------------ */

int dnn_threads_for(double flop) { return flop < 2e6 ? 1 : dnn_core_threads((int64_t)(flop / 32)); }

int dnn_use_threads(int count)
{
#ifdef _OPENMP
  int before = omp_get_max_threads();
  if (before != count) omp_set_num_threads(count);
  return before;
#else
  return count;
#endif
}

/* -- Signals --------------------------------------------------------------------- */

static _Thread_local int quiet_team; /* so many threads of this thread's team take none */

void dnn_hold_signals(int threads, sigset_t *before)
{
  if (!holds) return;
  amp__block_signals(before); /* threads that oneDNN starts inherit it */
  if (threads <= quiet_team) return;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
  if (omp_get_thread_num() > 0) amp__block_signals(NULL);
#endif
  quiet_team = threads;
}

void dnn_release_signals(const sigset_t *before)
{
  if (holds) pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* -- Making an entry --------------------------------------------------------------- */

/* The layout of md, data of `size` in count dimensions: block 1, C or 16; false: another one. `type` is md's. */
static bool layout_of(dnn_layout *layout, dnn_md md, int count, const int64_t *size, int type)
{
  int64_t plain[5], last[5], p = 1;
  for (int i = count - 1; i > 1; i--) {
    plain[i] = p;
    last[i] = p * size[1];
    p *= size[i];
  }
  plain[1] = p;
  last[1] = 1;
  plain[0] = last[0] = p * size[1];
  *layout = (dnn_layout){ size[0], size[1], p, 0, type == (int)dnnl_f32 ? 4 : 2 };
  dnn_md some[3] = { dnn_md_strided(count, size, type, plain), dnn_md_strided(count, size, type, last),
                     size[1] % 16 ? NULL : dnn_md_blocked(count, size, type) };
  const int64_t block[3] = { 1, size[1], 16 };
  for (int i = 0; i < 3; i++) {
    if (some[i] && layout->block == 0 && dnnl_memory_desc_equal(md, some[i])) layout->block = block[i];
    if (some[i]) dnn_md_free(some[i]);
  }
  return layout->block > 0;
}

/* data: the tensor if it is an image, else NULL */
static bool add_operand(dnn_entry *entry, int arg, bool out, dnn_md user, dnn_md want, const amp_tensor *data, int type)
{
  dnn_operand *operand = &entry->operand[entry->count++];
  dnnl_primitive_desc_t pd;
  operand->arg = arg;
  operand->out = out;
  if (dnnl_memory_create(&operand->user, user, dnn_engine, DNNL_MEMORY_NONE) != dnnl_success) return false;
  if (want == NULL || dnnl_memory_desc_equal(user, want)) {
    operand->own = operand->user;
    return true;
  }
  if (dnnl_memory_create(&operand->own, want, dnn_engine, DNNL_MEMORY_NONE) != dnnl_success) {
    operand->own = NULL;
    return false;
  }
  operand->bytes = (dnnl_memory_desc_get_size(want) + 63) / 64 * 64;
  operand->how = DNN_LAYOUT;
  if (data && (data->flags & AMP_T_CONTIGUOUS) && layout_of(&operand->layout, want, data->ndim, data->size, type)
      && operand->layout.block > 1)
    return true;
  operand->how = DNN_REORDER;
  if (dnnl_reorder_primitive_desc_create(&pd, out ? want : user, dnn_engine, out ? user : want, dnn_engine, NULL)
      != dnnl_success)
    return false;
  bool ok = dnnl_primitive_create(&operand->reorder, pd) == dnnl_success;
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

/* The result as float32 sums, to which a bias is added on the way into the tensor */
static bool add_finish(dnn_entry *entry, int arg, dnn_md user, dnn_md want, const amp_tensor *data,
                       const amp_tensor *bias)
{
  dnn_operand *operand = &entry->operand[entry->count++];
  operand->arg = arg;
  operand->out = true;
  operand->how = DNN_FINISH;
  operand->last = !(data->flags & AMP_T_CONTIGUOUS);
  operand->bias_half = bias->dtype != AMP_FLOAT32;
  if (!layout_of(&operand->layout, want, data->ndim, data->size, dnnl_f32)) return false;
  operand->layout.bytes = data->dtype == AMP_FLOAT32 ? 4 : 2;
  operand->bytes = (dnnl_memory_desc_get_size(want) + 63) / 64 * 64;
  return dnnl_memory_create(&operand->user, user, dnn_engine, DNNL_MEMORY_NONE) == dnnl_success
         && dnnl_memory_create(&operand->own, want, dnn_engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static const char *implementation(dnnl_primitive_desc_t pd)
{
  const char *name = NULL;
  return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name ? name : "gemm";
}

/* Correct, and a thousand times too slow */
static bool by_reference(dnnl_primitive_desc_t pd) { return strncmp(implementation(pd), "ref", 3) == 0; }

void dnn_build(dnn_entry *entry, const dnn_problem *problem, const dnn_problem *user, const amp_tensor *src,
               const amp_tensor *dst, const amp_tensor *finish)
{
  pthread_mutex_lock(&dnn_shared);
  int before = dnn_use_threads(entry->threads);
  static const int args[4][4] = { { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST },
                                  { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST },
                                  { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST },
                                  { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, 0, DNNL_ARG_DIFF_DST } };
  static const dnnl_query_t asks[4][3] = { { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md },
                                           { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md },
                                           { dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md },
                                           { dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md } };
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t pd = NULL;
  const int *arg = args[problem->kind];
  const dnnl_query_t *ask = asks[problem->kind];
  bool ok = dnnl_primitive_attr_create(&attr) == dnnl_success
            && dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success
            && dnn_add_after(attr, problem) && dnn_primitive_desc(&pd, problem, dnn_engine, attr) == dnnl_success
            && !by_reference(pd);
  int type = src ? dnn_type(src) : 0;
  ok = ok
       && (finish ? add_finish(entry, arg[0], user->src, dnn_query(pd, ask[0]), src, finish)
                  : add_operand(entry, arg[0], problem->kind == DNN_CONV_INPUT, user->src, dnn_query(pd, ask[0]), src,
                                type))
       && add_operand(entry, arg[1], problem->kind == DNN_CONV_WEIGHT, user->weight, dnn_query(pd, ask[1]), NULL, 0)
       && add_operand(entry, arg[3], problem->kind == DNN_MATMUL || problem->kind == DNN_CONV, user->dst,
                      dnn_query(pd, ask[2]), dst, type)
       && (user->bias == NULL || add_operand(entry, arg[2], false, user->bias, NULL, NULL, 0));
  entry->lends_stack = ok && strstr(implementation(pd), "gemm") && !strstr(implementation(pd), "brg");
  for (int i = 0; i < entry->count; i++) entry->place[i] = i;
  entry->place[entry->count] = DNN_OPERANDS - 1;
  ok = ok
       && (problem->added == NULL
           || add_operand(entry, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, false, problem->added, NULL, NULL,
                          0));
  if (ok) {
    dnn_md s = dnn_query(pd, dnnl_query_scratchpad_md);
    entry->scratch_bytes = s ? dnnl_memory_desc_get_size(s) : 0;
    ok = (s == NULL || entry->scratch_bytes == 0
          || dnnl_memory_create(&entry->scratch, s, dnn_engine, DNNL_MEMORY_NONE) == dnnl_success)
         && dnnl_primitive_create(&entry->prim, pd) == dnnl_success;
  }
  if (!ok && entry->prim) {
    dnnl_primitive_destroy(entry->prim);
    entry->prim = NULL;
  }
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (attr) dnnl_primitive_attr_destroy(attr);
  dnn_use_threads(before);
  pthread_mutex_unlock(&dnn_shared);
}

void dnn_problem_free(dnn_problem *problem)
{
  dnn_md_free(problem->src);
  dnn_md_free(problem->weight);
  dnn_md_free(problem->bias);
  dnn_md_free(problem->dst);
  dnn_md_free(problem->hint_src);
  dnn_md_free(problem->added);
}

/* -- What a graph's run offers ------------------------------------------------------- */

amp_offer *dnn_offer(const amp_tensor *weight)
{
  struct amp_state_private *priv = dnn_core->state()->priv;
  amp_offer *offer = priv->offer;
  if (offer == NULL || offer->weight != weight) return NULL;
  priv->offer = NULL;
  return offer;
}

static uint64_t form_of(const dnn_entry *entry)
{
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < entry->key[0]; i++)
    h = (h ^ (uint64_t)entry->key[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 31;
  return h;
}

/* The weight in the primitive's layout as the graph keeps it, made if it is not there. NULL: it is not kept. */
static void *packed_weight(const dnn_entry *entry, dnn_operand *operand, amp_offer *offer)
{
  uint64_t form = form_of(entry);
  if (offer->packed && offer->form == form) return offer->packed->storage->data;
  int64_t size = (int64_t)operand->bytes;
  amp_tensor *packed = dnn_core->tensor_make(AMP_UINT8, AMP_CPU, 0, 1, &size);
  if (packed == NULL) return NULL;
  dnnl_exec_arg_t r[2] = { { DNNL_ARG_FROM, operand->user }, { DNNL_ARG_TO, operand->own } };
  dnnl_memory_set_data_handle(operand->own, packed->storage->data);
  if (dnnl_primitive_execute(operand->reorder, stream, 2, r) != dnnl_success) {
    dnn_core->free(packed);
    return NULL;
  }
  if (offer->packed) dnn_core->free(offer->packed);
  offer->packed = packed;
  offer->form = form;
  return packed->storage->data;
}

/* -- Running ------------------------------------------------------------------------ */

static bool bring(dnn_entry *entry, dnn_operand *operand, void *from, char *room, amp_offer *offer)
{
  void *packed = NULL;
  if (offer && operand->arg == DNNL_ARG_WEIGHTS && operand->how == DNN_REORDER)
    packed = packed_weight(entry, operand, offer);
  dnnl_memory_set_data_handle(operand->own, packed ? packed : room);
  if (operand->out || packed) return true;
  dnnl_exec_arg_t r[2] = { { DNNL_ARG_FROM, operand->user }, { DNNL_ARG_TO, operand->own } };
  if (operand->how != DNN_LAYOUT) return dnnl_primitive_execute(operand->reorder, stream, 2, r) == dnnl_success;
  dnn_layout_move(&operand->layout, from, room, 0, entry->threads);
  return true;
}

static bool execute(dnn_cache *cache, dnn_entry *entry, void *const *data, amp_offer *offer)
{
  dnnl_exec_arg_t args[DNN_OPERANDS + 1];
  size_t need = 64 + entry->scratch_bytes, at = (entry->scratch_bytes + 63) / 64 * 64;
  void *own[DNN_OPERANDS];
  if (entry->prim == NULL) return false;
  for (int i = 0; i < entry->count; i++) need += entry->operand[i].bytes;
  char *mem = need > 64 ? memory(cache, need) : NULL;
  if (need > 64 && mem == NULL) return false;
  for (int i = 0; i < entry->count; i++) {
    dnn_operand *operand = &entry->operand[i];
    void *from = data[entry->place[i]];
    dnnl_memory_set_data_handle(operand->user, from);
    if (operand->how != DNN_AS_IT_LIES) {
      own[i] = mem + at;
      at += operand->bytes;
      if (!bring(entry, operand, from, own[i], offer)) return false;
    }
    args[i] = (dnnl_exec_arg_t){ operand->arg, operand->own };
  }
  int count = entry->count;
  if (entry->scratch) {
    dnnl_memory_set_data_handle(entry->scratch, mem);
    args[count++] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, entry->scratch };
  }
  if (dnnl_primitive_execute(entry->prim, stream, count, args) != dnnl_success) return false;
  for (int i = 0; i < entry->count; i++) {
    dnn_operand *operand = &entry->operand[i];
    void *to = data[entry->place[i]];
    dnnl_exec_arg_t r[2] = { { DNNL_ARG_FROM, operand->own }, { DNNL_ARG_TO, operand->user } };
    if (!operand->out || operand->how == DNN_AS_IT_LIES) continue;
    if (operand->how == DNN_FINISH)
      dnn_layout_finish(&operand->layout, to, operand->last, own[i], data[3], operand->bias_half, entry->threads);
    else if (operand->how == DNN_LAYOUT) dnn_layout_move(&operand->layout, to, own[i], 1, entry->threads);
    else if (dnnl_primitive_execute(operand->reorder, stream, 2, r) != dnnl_success) return false;
  }
  return true;
}

bool dnn_run(dnn_cache *cache, dnn_entry *entry, void *const *data, amp_offer *offer)
{
  sigset_t signals;
  int before = dnn_use_threads(entry->threads);
  if (!entry->ran) pthread_mutex_lock(&dnn_shared);
  if (entry->lends_stack) dnn_hold_signals(entry->threads, &signals);
  bool ok = execute(cache, entry, data, offer);
  if (entry->lends_stack) dnn_release_signals(&signals);
  if (!entry->ran) pthread_mutex_unlock(&dnn_shared);
  entry->ran = true;
  dnn_use_threads(before);
  return ok;
}

dnn_entry *dnn_find(dnn_cache *cache, const int64_t *k, size_t h)
{
  for (dnn_entry *entry = cache->slot[h]; entry; entry = entry->next)
    if (memcmp(entry->key, k, sizeof *k * (size_t)k[0]) == 0) return entry;
  return NULL;
}

dnn_entry *dnn_add(dnn_cache *cache, const int64_t *k, size_t h)
{
  if (cache->count >= 4096) clear(cache); /* shapes that never repeat must not pile up */
  dnn_entry *entry = calloc(1, sizeof *entry);
  if (entry == NULL) return NULL;
  memcpy(entry->key, k, sizeof *k * (size_t)k[0]);
  entry->next = cache->slot[h];
  cache->slot[h] = entry;
  cache->count++;
  return entry;
}
