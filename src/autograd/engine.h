/*
** autograd/engine.h: the inside of the engine, for autograd/engine.c (begin and end, what
** Lua sees), autograd/engine_run.c (nodes and stops), autograd/engine_send.c (gradients on
** their way) and autograd/engine_map.c (what was reached, in which order).
**
** Every step can lack memory, and is then taken again after a collection (AMP_R_MEMORY).
** So a step that fails leaves what it was given with its caller, and has done nothing
** that doing it again would do twice: functions that take a tensor (amp_tensor **) take
** it where they give 0, and only there.
*/
#ifndef AMP_ENGINE_H
#define AMP_ENGINE_H
#include "dispatch/op_builder.h"
#include "autograd/tape.h"
#include "base/pointer_map.h"

enum prune { PRUNE_UNKNOWN, PRUNE_VISITING, PRUNE_NEEDED, PRUNE_UNNEEDED }; /* is a node on a way to a target? */

typedef struct entry { /* a node (or leaf whose gradient waits for the end) reached, with what came for it */
  void *key;           /* amp_node * or amp_tensor * */
  amp_tensor **grad;   /* [nout], owned */
  int8_t state;        /* enum prune */
  uint8_t origin;      /* enum amp_origin of what came for it */
  bool is_leaf, queued;
  int32_t target; /* first target of this key, -1 */
} entry;

typedef struct target {
  amp_tensor *leaf;
  amp_edge edge;
  amp_tensor *grad;
  int next;
} target;

typedef struct item { /* a gradient that engine->node sends along an edge */
  amp_tensor *tensor; /* owned, NULL: sent */
  int edge;
  bool fits, any_dtype; /* it needs no look at its shape and dtype; any float dtype will do */
  bool summed;          /* what came so far is in it: it takes the place of that */
} item;

typedef struct watch { /* a leaf that somebody waits for (autograd/engine_ready.c) */
  amp_tensor *leaf;    /* counted */
  int left, next;      /* edges that lead to it yet; of the complete ones, from 1 */
  bool complete;
} watch;

enum phase { AT_HOOKS, AT_TARGETS, AT_DERIVATIVE, AT_PART, AT_LATER, AT_FIT, AT_SEND }; /* of the work on a node */

/* Pieces of a dense gradient that came in place (autograd/engine_pieces.c): which, along a dimension */
enum { AMP_PIECES_WHOLES = 4, AMP_PIECES_MOST = 8 };
typedef struct amp_pieces {
  amp_node *node;
  int index, dim, count;
  int64_t start[AMP_PIECES_MOST], length[AMP_PIECES_MOST];
} amp_pieces;

typedef struct engine {
  amp_engine head;
  int flags;
  bool only;      /* targets given: nothing else is reached */
  bool inner;     /* a target is no leaf */
  bool collected; /* memory was given back for the step in progress: it is its last try */
  int was;        /* the request that was being served when memory was short */
  entry *map;
  int cap, count; /* open addressing, at most half full; entries move when it grows: look up by key */
  int32_t *taken; /* [cap / 2], behind the map: the places of its entries, as they came */
  amp_node **heap;
  int nheap, capheap;
  amp_tensor **leaves;
  int nleaves, capleaves; /* whose gradients wait, in order of arrival */
  int leaf_at;
  amp_deferred_wgrad *later; /* products that derivatives put off */
  uint8_t origin, outer;     /* of those products; the state's before this engine */
  target *targets;
  int ntarget;
  watch *watches;
  int nwatch, capwatch, complete,
      told;   /* complete: the first that is to be told, from 1; told: of the others, at the end */
  bool flush; /* products put off are of a complete one */
  /* the node in progress */
  amp_node *node;
  int phase, hook_at, target_at, item_at; /* hook_at: next output whose hooks are to run */
  amp_tensor **incoming;                  /* what came for it, [nout], owned */
  uint32_t came;                          /* bits: which of that was there */
  item *items;
  int nitem, capitem;
  amp_tensor *part; /* amp_bwd.part, owned, and its place */
  int64_t part_stride[AMP_MAX_DIM], part_offset;
  amp_pieces pieces[AMP_PIECES_WHOLES];
  int npieces;
  /* the stop in progress */
  amp_tensor *leaf; /* whose hooks run, or ran */
  amp_tensor **inputs;
  int nin; /* given to Lua, owned */
  amp_tensor **back;
  int nback; /* supplied, owned */
} engine;

static inline bool amp__engine_accumulates(const engine *e) { return (e->flags & AMP_B_ACCUMULATE) != 0; }

/* autograd/engine_map.c */
entry *amp__engine_new(engine *engine, void *key,
                       bool is_leaf); /* for a key that is not in the map; it is counted while it is. NULL: error */
static inline entry *amp__engine_find(engine *engine, const void *key)
{
  if (engine->cap == 0) return NULL;
  entry *x = &engine->map[amp__pointer_find(engine->map, sizeof *engine->map, (size_t)engine->cap, key)];
  return x->key ? x : NULL;
}

static inline entry *amp__engine_get(engine *engine, void *key, bool is_leaf)
{
  entry *x = amp__engine_find(engine, key);
  return x ? x : amp__engine_new(engine, key, is_leaf);
}
int amp__engine_push(engine *engine, amp_node *node);
amp_node *amp__engine_pop(engine *engine);
int amp__engine_mark(engine *engine, amp_node *root); /* which nodes from root on lead to a target */

/* autograd/engine_pieces.c */
/* Engine->part, for an output of node whose gradient is gathered in *cell: 1: it is in place there, 0: it is not, <0:
** error */
int amp__engine_piece(engine *engine, amp_node *node, int index, amp_tensor **cell);
/* Those of an output of node that came so far, or NULL */
amp_pieces *amp__engine_pieces(engine *engine, const amp_node *node, int index);
/* What node's outputs gathered is whole from now on */
int amp__engine_settle(engine *engine, const amp_node *node);

/* autograd/engine_send.c */
int amp__engine_send(engine *engine, const amp_edge *to, amp_tensor **g, bool may_keep,
                     bool at_end); /* at_end: a leaf takes it at the end */
int amp__engine_into_leaf(engine *engine, amp_tensor *leaf, amp_tensor **g,
                          bool may_keep);        /* a leaf's share, complete or not */
int amp__engine_send_part(engine *engine);       /* engine->part, to input 0 of engine->node */
int amp__engine_flush(engine *engine, bool all); /* products put off; all: else only those that hold much */
int amp__engine_more_room(engine *engine, int count);
static inline int amp__engine_room(engine *engine, int count)
{
  return engine->nitem + count <= engine->capitem ? 0 : amp__engine_more_room(engine, count);
} /* for so many items more */

static inline int amp__engine_add_item(engine *engine, int edge, amp_tensor *tensor) /* counts tensor */
{
  int status = amp__engine_room(engine, 1);
  if (status < 0) return status;
  amp__retain(tensor);
  engine->items[engine->nitem++] = (item){ .tensor = tensor, .edge = edge };
  return 0;
}

int amp__engine_deliver(engine *engine); /* from engine->phase on, parts, products and items */
void amp__engine_drop_items(engine *engine);

/* autograd/engine_ready.c */
int amp__engine_watch(engine *engine);          /* roots are there: who waits for what they lead to? */
void amp__engine_passed(engine *engine);        /* engine->node is done */
int amp__engine_tell(engine *engine, bool all); /* 1: Lua's turn; all: at the end, of those that are left as well */
void amp__engine_unwatch(engine *engine);

/* autograd/engine_run.c */
int amp__engine_run(engine *engine);
void amp__engine_stop_done(engine *engine);
void amp__engine_drop_node(engine *engine); /* what came for the node in progress */

#endif
