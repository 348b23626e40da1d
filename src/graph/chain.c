/*
** graph/chain.c: runs of elementwise nodes work through memory together, block by block: what one node makes of a block
** is in the cache when the next one reads it, and only the last node's result is ever whole.
**
**   for each block:  t1 = row1(x[block], ...)   t2 = row2(t1, y[block])   ...   out[block] = row_n(t_k, ...)
**
** Each row runs its own CPU kernel on views of a block, so values are those of the rows to the bit. Operands
** broadcast as ever: a view's dimensions of size 1 stay. Where a gradient is wanted, a region is on or something
** watches, the nodes run one by one instead.
**
** On a GPU the device is told the calls, and makes one launch of them (amp_device_ops.chain); where it can't, the
** nodes run one by one as well, and why is said once, as a line of the log.
*/
#include <stdlib.h>
#include "cpu/strided.h"
#include "graph/graph.h"

enum {
  BLOCK = 8192, /* elements */
  OUTER = -1    /* a place that is no node's: the tensor comes from outside */
};

typedef struct link {
  int operand[CHAIN_OPERANDS]; /* the node of the chain that makes it, or OUTER */
  int buffer;                  /* that its result goes to; the last node's: the result itself */
  int last;                    /* node of the chain that reads it last */
} link;

typedef struct plan {
  graph_run *run;
  const amp_graph_node *node; /* [count] */
  int count, buffers;
  link link[CHAIN_MOST];
  amp_call call[CHAIN_MOST];    /* on whole tensors: operands, attributes as shape rules complete them, metas */
  amp_tensor whole[CHAIN_MOST]; /* results without memory, for shape rules */
  amp_tensor *result;
  int split;          /* dimension that is cut; those before it are walked, those behind it stay */
  int64_t step;       /* its size in a block */
  int64_t cuts;       /* blocks along it */
  size_t buffer_room; /* bytes */
  int64_t blocks;
  int threads, failed;
  int device, index; /* that they run on */
} plan;

/* -- Planning ------------------------------------------------------------------------- */

static bool good_dtype(const amp_tensor *t)
{
  return (t->flags & AMP_T_NUMBER) || amp__is_float(t->dtype) || t->dtype == AMP_BOOL || t->dtype == AMP_INT64
         || t->dtype == AMP_INT32;
}

static bool lies_there(const plan *p, const amp_tensor *t)
{
  if (t->device == p->device && t->device_index == p->index) return true;
  return t->device == AMP_CPU && t->ndim == 0; /* a number, or a scalar of the host, goes to every device */
}

/* Operands of node i from outside must be plain tensors of the device that want no gradient here. */
static bool outer_fits(const plan *p, int i, amp_tensor *t)
{
  int8_t grad = p->node[i].grad;
  amp__refresh(t);
  bool recording = grad < 0 ? amp__S->grad_mode != 0 : grad != 0;
  return lies_there(p, t) && !(recording && amp__tracked(t)) && !(t->flags & AMP_T_MASK)
         && (p->device != AMP_CPU || good_dtype(t));
}

static int maker_in_chain(const plan *p, int i, int32_t value)
{
  for (int j = i - 1; j >= 0; j--)
    if (p->node[j].out[0] == value) return j;
  return OUTER;
}

/* Shape and dtype of node i's result, by its row's rule. */
static bool infer(plan *p, int i)
{
  const amp_graph_node *n = &p->node[i];
  amp_call *c = &p->call[i];
  memset(c, 0, offsetof(amp_call, meta));
  c->op = &amp__ops[n->op];
  c->id = n->op;
  c->nin = n->nin;
  c->in = c->in_store;
  c->attrs = c->attr_store;
  for (int o = 0; o < AMP_MAX_IN; o++) c->in_store[o] = NULL;
  memcpy(c->attr_store, n->attrs, sizeof *n->attrs * (size_t)c->op->info.nslot);
  for (int o = 0; o < n->nin; o++) {
    if (n->in[o] < 0) continue;
    int maker = p->link[i].operand[o] = maker_in_chain(p, i, n->in[o]);
    amp_tensor *t = c->in_store[o] = maker == OUTER ? p->run->value[n->in[o]] : &p->whole[maker];
    if (t == NULL || (maker == OUTER && !outer_fits(p, i, t))) return false;
    if (!(c->op->info.dtypes >> t->dtype & 1) && !(t->flags & AMP_T_NUMBER)) return false;
    if (maker != OUTER) p->link[maker].last = i;
  }
  if (c->op->infer(c) < 0 || c->nout != 1) return false;
  const amp_meta *m = &c->meta[0];
  if (m->device != p->device) return false;
  if (p->device == AMP_CPU && (m->strides != AMP_M_C_ORDER || (!amp__is_float(m->dtype) && m->dtype != AMP_BOOL)))
    return false;
  if (m->strides > AMP_M_STRIDES) return false;
  amp_tensor *t = &p->whole[i];
  memset(t, 0, sizeof *t);
  t->refs = 1;
  t->dtype = m->dtype;
  t->ndim = m->ndim;
  t->device = m->device;
  t->device_index = m->device_index;
  memcpy(t->size, m->size, sizeof *t->size * m->ndim);
  if (m->strides == AMP_M_STRIDES) memcpy(t->stride, m->stride, sizeof *t->stride * m->ndim);
  else amp__contiguous_strides(t->ndim, t->size, t->stride);
  amp__tensor_set_flags(t);
  return i == 0 || amp__same_size(t, &p->whole[0]);
}

/* Buffers of operands that node i reads last are free: for its own result where elements are as large, else after it.
 */
static void free_buffers(const plan *p, int i, bool before, bool *busy)
{
  for (int o = 0; o < p->node[i].nin; o++) {
    int from = p->node[i].in[o] >= 0 ? p->link[i].operand[o] : OUTER;
    if (from == OUTER || p->link[from].last != i) continue;
    bool same = amp__dtype_size[p->whole[from].dtype] == amp__dtype_size[p->whole[i].dtype];
    if (same == before) busy[p->link[from].buffer] = false;
  }
}

static void assign_buffers(plan *p)
{
  bool busy[CHAIN_MOST + 1] = { false };
  p->buffers = 0;
  for (int i = 0; i + 1 < p->count; i++) {
    free_buffers(p, i, true, busy);
    int free_one = 0;
    while (busy[free_one]) free_one++;
    busy[free_one] = true;
    p->link[i].buffer = free_one;
    if (free_one + 1 > p->buffers) p->buffers = free_one + 1;
    free_buffers(p, i, false, busy);
  }
}

static void cut(plan *p)
{
  const amp_tensor *t = p->result;
  int64_t inner = 1, outer = 1;
  int d = t->ndim - 1;
  while (d > 0 && inner * t->size[d] <= BLOCK) inner *= t->size[d--];
  p->split = d;
  p->step = BLOCK / inner;
  if (p->step > t->size[d]) p->step = t->size[d];
  p->cuts = (t->size[d] + p->step - 1) / p->step;
  for (int i = 0; i < d; i++) outer *= t->size[i];
  p->blocks = outer * p->cuts;
  p->buffer_room = ((size_t)(p->step * inner) * 8 + 63) & ~(size_t)63;
  p->threads = amp__threads(t->numel * p->count);
  if (p->threads > p->blocks) p->threads = (int)p->blocks;
}

/* -- Blocks --------------------------------------------------------------------------- */

/* The part of `whole`, which broadcasts to `shape`, at index[] of the dimensions up to the split one */
static void view_block(const plan *p, amp_tensor *view, const amp_tensor *whole, const int64_t *index, int64_t step)
{
  int shift = p->result->ndim - whole->ndim;
  *view = *whole;
  view->ag = NULL;
  view->flags &= AMP_T_NUMBER;
  for (int d = 0; d <= p->split; d++) {
    int at = d - shift;
    if (at < 0 || whole->size[at] == 1) continue;
    view->offset += index[d] * whole->stride[at];
    view->size[at] = d == p->split ? step : 1;
  }
  amp__tensor_set_flags(view);
}

/* A block's result in buffer memory */
static void buffer_block(const plan *p, amp_tensor *view, amp_storage *storage, int i, const int64_t *index,
                         int64_t step)
{
  view_block(p, view, &p->whole[i], index, step);
  amp__contiguous_strides(view->ndim, view->size, view->stride);
  view->flags |= AMP_T_CONTIGUOUS | AMP_T_DENSE;
  view->offset = 0;
  view->storage = storage;
}

typedef struct lane {
  amp_call call[CHAIN_MOST];
  amp_tensor made[CHAIN_MOST], taken[CHAIN_MOST][CHAIN_OPERANDS];
  amp_storage storage[CHAIN_MOST];
} lane;

static int run_block(const plan *p, lane *l, int64_t block)
{
  int64_t index[AMP_MAX_DIM] = { 0 }, at = block / p->cuts, step = p->step, size = p->result->size[p->split];
  index[p->split] = block % p->cuts * p->step;
  if (index[p->split] + step > size) step = size - index[p->split];
  for (int d = p->split - 1; d >= 0; d--) {
    index[d] = at % p->result->size[d];
    at /= p->result->size[d];
  }
  for (int i = 0; i < p->count; i++) {
    amp_call *c = &l->call[i];
    for (int o = 0; o < c->nin; o++) {
      const amp_tensor *whole = p->call[i].in_store[o];
      if (whole == NULL) continue;
      int from = p->link[i].operand[o];
      if (from == OUTER) view_block(p, &l->taken[i][o], whole, index, step);
      c->in_store[o] = from == OUTER ? &l->taken[i][o] : &l->made[from];
    }
    if (i + 1 == p->count) view_block(p, &l->made[i], p->result, index, step);
    else buffer_block(p, &l->made[i], &l->storage[p->link[i].buffer], i, index, step);
    int rc = amp__kernel(AMP_CPU, c->id)(c);
    if (rc < 0) return rc;
  }
  return 0;
}

static void run_part(int64_t begin, int64_t end, void *context)
{
  plan *p = context;
  lane *l = malloc(sizeof *l);
  char *memory = malloc(p->buffer_room * (size_t)(p->buffers ? p->buffers : 1) + 64);
  bool failed = l == NULL || memory == NULL;
  if (!failed) {
    char *from = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    for (int i = 0; i < p->buffers; i++) {
      memset(&l->storage[i], 0, offsetof(amp_storage, small));
      l->storage[i].refs = 1;
      l->storage[i].data = from + p->buffer_room * (size_t)i;
      l->storage[i].bytes = p->buffer_room;
    }
    for (int i = 0; i < p->count; i++) {
      amp_call *c = &l->call[i];
      *c = p->call[i];
      c->in = c->in_store;
      c->attrs = c->attr_store;
      c->out[0] = &l->made[i];
    }
    for (int64_t block = begin; block < end && !failed; block++) failed = run_block(p, l, block) < 0;
  }
  if (failed) __atomic_store_n(&p->failed, 1, __ATOMIC_RELAXED);
  free(l);
  free(memory);
}

/* -- Running ---------------------------------------------------------------------------- */

static bool watched(const plan *p)
{
  const amp_state *S = amp__S;
  if (S->autocast_on || amp__tracing() || amp__observing()) return true;
  return amp__capturing && (p->device == AMP_CPU || S->priv->journal);
}

static bool infer_all(plan *p)
{
  for (int i = 0; i < p->count; i++) p->link[i].last = OUTER;
  for (int i = 0; i < p->count; i++)
    if (!infer(p, i)) return false;
  return true;
}

static int run_plan(plan *p)
{
  if (!infer_all(p) || p->whole[0].numel < CHAIN_LEAST) return 0;
  assign_buffers(p);
  if ((p->result = amp__tensor_new(&p->call[p->count - 1].meta[0])) == NULL) return amp__S->err.code;
  cut(p);
  amp__parallel(p->threads, p->blocks, 1, run_part, p);
  if (!p->failed) return 1;
  amp__free(p->result);
  p->result = NULL;
  return 0; /* node by node it says why */
}

/* The same for all that a launch uses as dispatch does for an op */
static void touch(const plan *p)
{
  for (int i = 0; i < p->count; i++)
    for (int o = 0; o < p->node[i].nin; o++) {
      amp_tensor *t = p->node[i].in[o] >= 0 && p->link[i].operand[o] == OUTER ? p->call[i].in_store[o] : NULL;
      if (t && amp_unlikely(amp__capturing)) amp__capture_note(t);
      amp__touch(t);
    }
  if (amp_unlikely(amp__capturing)) amp__capture_note(p->result);
  amp__touch(p->result);
}

static int run_there(plan *p)
{
  const int last = p->count - 1;
  char why[512] = "";
  if (!infer_all(p) || p->whole[0].numel == 0) return 0;
  if ((p->result = amp__tensor_new(&p->call[last].meta[0])) == NULL) return amp__S->err.code;
  for (int i = 0; i <= last; i++) p->call[i].out[0] = i < last ? &p->whole[i] : p->result;
  touch(p);
  int rc = amp__devices[p->device].chain(p->index, p->call, p->count, why, sizeof why);
  if (why[0])
    amp__log("nodes '%s' to '%s' of a graph %s: %s", p->node[0].name, p->node[last].name,
             rc > 0 ? "are one kernel" : "run one by one, not as one kernel", why);
  if (rc > 0) return rc;
  amp__free(p->result);
  p->result = NULL;
  return rc;
}

int graph_run_chain(graph_run *run, const graph_chain *chain)
{
  const amp_graph *g = run->graph;
  plan *p = malloc(sizeof *p);
  if (p == NULL) return 0;
  p->run = run;
  p->node = &g->nodes[chain->first];
  p->count = chain->count;
  p->failed = 0;
  const amp_graph_value *result = &g->values[p->node[p->count - 1].out[0]].info;
  p->device = result->device;
  p->index = result->device_index;
  int rc = watched(p) ? 0 : p->device == AMP_CPU ? run_plan(p) : amp__devices[p->device].chain ? run_there(p) : 0;
  if (rc > 0) run->value[p->node[p->count - 1].out[0]] = p->result;
  free(p);
  return rc;
}
