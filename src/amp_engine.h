/*
** amp_engine.h: the inside of the engine, for amp_engine.c (begin and end, what
** Lua sees), amp_engine_run.c (nodes and stops), amp_engine_send.c (gradients on
** their way) and amp_engine_map.c (what was reached, in which order).
**
** Every step can lack memory, and is then taken again after a collection (AMP_R_MEMORY).
** So a step that fails leaves what it was given with its caller, and has done nothing
** that doing it again would do twice: functions that take a tensor (amp_tensor **) take
** it where they give 0, and only there.
*/
#ifndef AMP_ENGINE_H
#define AMP_ENGINE_H
#include "amp_compose.h"
#include "amp_tape.h"

typedef struct entry {          /* a node (or leaf whose gradient waits for the end) reached, with what came for it */
  void *key;                    /* amp_node * or amp_tensor * */
  amp_tensor **grad;            /* [nout], owned */
  int8_t state;                 /* pruning: 0 unknown, 1 being looked at, 2 needed, 3 not */
  uint8_t origin;               /* enum amp_origin of what came for it */
  bool is_leaf, queued;
  int32_t target;               /* first target of this key, -1 */
} entry;

typedef struct target { amp_tensor *t; amp_edge e; amp_tensor *grad; int next; } target;

typedef struct item {           /* a gradient that e->node sends along an edge */
  amp_tensor *t;                /* owned, NULL: sent */
  int edge;
  bool fits, any_dtype;         /* it needs no look at its shape and dtype; any float dtype will do */
  bool summed;                  /* what came so far is in it: it takes the place of that */
} item;

enum phase { AT_HOOKS, AT_TARGETS, AT_DERIVATIVE, AT_PART, AT_LATER, AT_FIT, AT_SEND }; /* of the work on a node */

typedef struct engine {
  amp_engine head;
  int flags;
  bool only;                    /* targets given: nothing else is reached */
  bool inner;                   /* a target is no leaf */
  bool collected;               /* memory was given back for the step in progress: it is its last try */
  int was;                      /* the request that was being served when memory was short */
  entry *map; int cap, count;   /* open addressing; entries move when it grows: look up by key */
  amp_node **heap; int nheap, capheap;
  amp_tensor **leaves; int nleaves, capleaves; /* whose gradients wait, in order of arrival */
  int leaf_at;
  amp_later *later;             /* products that derivatives put off */
  uint8_t origin, outer;        /* of those products; the state's before this engine */
  target *targets; int ntarget;
  /* the node in progress */
  amp_node *node;
  int phase, hook_at, target_at, item_at; /* hook_at: next output whose hooks are to run */
  amp_tensor **g;               /* what came for it, [nout], owned */
  uint32_t came;                /* bits: which of that was there */
  item *items; int nitem, capitem;
  amp_tensor *part;             /* amp_bwd.part, owned, and its place */
  int64_t part_stride[AMP_MAX_DIM], part_offset;
  /* the stop in progress */
  amp_tensor *leaf;             /* whose hooks run, or ran */
  amp_tensor **in; int nin;     /* given to Lua, owned */
  amp_tensor **back; int nback; /* supplied, owned */
} engine;

static inline bool amp__engine_accumulates(const engine *e) { return (e->flags & AMP_B_ACCUMULATE) != 0; }

/* amp_engine_map.c */
entry *amp__engine_new(engine *e, void *key, bool is_leaf); /* for a key that is not in the map; it is counted while it is. NULL: error */
static inline size_t amp__engine_hash(const void *p) { return ((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20; }

static inline entry *amp__engine_find(engine *e, const void *key)
{
  if (e->cap == 0) return NULL;
  for (size_t h = amp__engine_hash(key) & (size_t)(e->cap - 1); e->map[h].key; h = (h + 1) & (size_t)(e->cap - 1))
    if (e->map[h].key == key) return &e->map[h];
  return NULL;
}

static inline entry *amp__engine_get(engine *e, void *key, bool is_leaf)
{
  entry *x = amp__engine_find(e, key);
  return x ? x : amp__engine_new(e, key, is_leaf);
}
int amp__engine_push(engine *e, amp_node *n);
amp_node *amp__engine_pop(engine *e);
int amp__engine_mark(engine *e, amp_node *root);            /* which nodes from root on lead to a target */

/* amp_engine_send.c */
int amp__engine_send(engine *e, const amp_edge *to, amp_tensor **g, bool may_keep, bool at_end); /* at_end: a leaf takes it at the end */
int amp__engine_into_leaf(engine *e, amp_tensor *leaf, amp_tensor **g, bool may_keep); /* a leaf's share, complete or not */
int amp__engine_send_part(engine *e);                       /* e->part, to input 0 of e->node */
int amp__engine_flush(engine *e, bool all);                 /* products put off; all: else only those that hold much */
int amp__engine_more_room(engine *e, int n);
static inline int amp__engine_room(engine *e, int n) { return e->nitem + n <= e->capitem ? 0 : amp__engine_more_room(e, n); } /* for n items more */

static inline int amp__engine_add_item(engine *e, int edge, amp_tensor *t) /* counts t */
{
  int rc = amp__engine_room(e, 1);
  if (rc < 0) return rc;
  amp__retain(t);
  e->items[e->nitem++] = (item){ .t = t, .edge = edge };
  return 0;
}

int amp__engine_deliver(engine *e);                         /* from e->phase on, parts, products and items */
void amp__engine_drop_items(engine *e);

/* amp_engine_run.c */
int amp__engine_run(engine *e);
void amp__engine_stop_done(engine *e);
void amp__engine_drop_node(engine *e);                      /* what came for the node in progress */

#endif
