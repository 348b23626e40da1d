/*
** graph/graph.h: a function as a list of op calls.
**
** Values are numbered; a node is one call of a row with the numbers of its operands and results. There is no
** second list of ops: what a node does, its row does, through amp__dispatch, so casts, shapes, history and
** errors are those of an eager call.
**
**   graph.c  the form: values, nodes, names; building and asking
**   trace.c  records what a state does as such a form
**   run.c    runs it; kept.c keeps what does not change between runs, folded.c what was computed of constants;
*product.c
**            what kernels of products may do; chain.c runs elementwise nodes by blocks
**   pass.h   passes over it
**   load.c   reads it from a file: weights.c its tensors, json.c its text
**   move.c   moves it to another device
*/
#ifndef AMP_GRAPH_GRAPH_H
#define AMP_GRAPH_GRAPH_H
#include "dispatch/dispatch.h"

enum { GRAPH_MAX = 1 << 24 /* values or nodes */, GRAPH_SIZES = 16 /* free sizes */ };
enum { GRAPH_OFF = 255 /* no region */ };
enum {
  CHAIN_MOST = 24 /* nodes of a chain */,
  CHAIN_OPERANDS = 3 /* of each */,
  CHAIN_READS = 14 /* tensors from outside, */,
  CHAIN_VALUES = 24 /* and values of the host, of one on a GPU */,
  CHAIN_LEAST = 16384 /* elements: fewer fit the cache as they are */
};

typedef struct graph_value {
  amp_graph_value info;
  int32_t last;     /* node that reads it last; outputs and what nobody reads: -1 */
  uint8_t varies;   /* while it is recorded: bit d, size d depends on values */
  bool made;        /* a copy of a constant that stands for a tensor made of Lua's numbers */
  uint32_t version; /* of its storage when it was met, while it is recorded */
  uint8_t fold_result;
  struct graph_fold *fold; /* of which it is that result (graph/folded.c), NULL: of none */
} graph_value;

/* Set of names: open addressing over value and node names; the texts belong to those. */
typedef struct graph_names {
  const char **at;
  int32_t *last; /* of each name, the number that was given last to one like it: name_3 */
  int count, room;
} graph_names;

/* What a state does with history and regions. */
typedef struct modes {
  int32_t grad, autocast_on;
  amp_autocast_state autocast[2];
} modes;
static inline modes graph_modes(const amp_state *S)
{
  modes m = { S->grad_mode, S->autocast_on, { S->autocast[0], S->autocast[1] } };
  return m;
}
static inline void graph_set_modes(amp_state *S, const modes *m)
{
  S->grad_mode = m->grad;
  S->autocast_on = m->autocast_on;
  memcpy(S->autocast, m->autocast, sizeof S->autocast);
}

/* Nodes first..first + count - 1, elementwise rows of one shape, of which the last one's result alone is used after. */
typedef struct graph_chain {
  int32_t first, count;
} graph_chain;

struct graph_product; /* a node whose kernel may keep its weight, and do what follows (graph/product.c) */
struct graph_kept;    /* results of the first nodes, as they were at the last run (graph/kept.c) */

struct amp_graph {
  graph_value *values;
  amp_graph_node *nodes;
  amp_graph_size *sizes;
  int32_t *inputs, *outputs;
  int nvalue, nnode, nsize, ninput, noutput;
  int value_room, node_room, size_room, input_room;
  int nfree; /* free sizes of the inputs */
  graph_names names;
  bool finished;
  bool folds;  /* some values are of folds */
  bool float8; /* a node is in a region of 8 bits of the graph's own: a run outside of regions is a step */
  /* What passes found; gone when the graph changes. */
  int nkept; /* the first nodes depend on what the graph holds alone */
  int nchain;
  graph_chain *chains; /* [nchain] by rising nodes */
  struct graph_kept *kept;
  int nproduct;
  struct graph_product *products; /* [nproduct] by rising nodes */
  amp_graph *before, *after;      /* among those whose products keep weights (graph/product.c) */
  bool listed, lean;              /* lean: products keep none */
  char *text;                     /* of the file that it came from, NULL: from none */
  bool asked;                     /* its function, which is not known any more, asked for the region it was in: */
  uint8_t region[2];              /* by device type, a dtype or GRAPH_OFF */
  struct amp_trace *trace;        /* that records it, NULL: it is recorded */
};

void graph_abandon(amp_graph *g);                          /* ends what records it */
int graph_know(amp_tensor *t, int kind, const char *name); /* to the graph that is being recorded, if it is new there */
void amp__graph_install(void);                             /* puts its functions into amp__hooks */

/* Builders shared by the recorder and the reader of files; -1: no memory, or out of bounds (the error is set). */
int graph_add_value(amp_graph *g, const amp_graph_value *v);
/* The node's operands and attributes are copied; results come to out[], named after the node. */
int graph_add_node(amp_graph *g, const amp_graph_node *n, const amp_graph_value *results);
char *graph_unique(amp_graph *g, const char *name); /* name, or name_1, name_2, ...; entered, NULL: no memory */
int graph_finish(amp_graph *g, const int32_t *output, int m);
void graph_free_node(amp_graph_node *node); /* what it points to */
int graph_names_anew(amp_graph *g);         /* the set of names, when values or nodes went */
void graph_forget(amp_graph *g);            /* what passes found */
int graph_find(amp_graph *g);               /* finds it in a finished graph that they changed before it was saved */

/* A run: values as it goes. */
typedef struct graph_run {
  const amp_graph *graph;
  amp_tensor **value; /* [nvalue]; borrowed from the caller and the graph, but for results and numbers made here */
  int64_t size[GRAPH_SIZES];
  int at, next; /* the node to run next; the amp_graph_size to look at next */
} graph_run;
/* true: results of the first nodes are those of the last run. false: they must run; *kept, if it is not NULL, then
** takes them by graph_kept_note. */
bool graph_kept_take(graph_run *run, struct graph_kept **kept);
void graph_kept_note(const graph_run *run, struct graph_kept *kept);
void graph_kept_free(struct graph_kept *kept);
/* Folds: a constant that was computed of those. Gives the results, counted, of a call out of regions and history. */
int graph_compute(int op, amp_tensor *const *in, int nin, const amp_slot *attrs, amp_tensor **out);
struct graph_fold *graph_fold_new(int op, int nin, const amp_slot *attrs); /* NULL: no memory */
void graph_fold_reads(struct graph_fold *fold, int i, amp_tensor *t, struct graph_fold *of, int which);
void graph_fold_gives(struct graph_fold *fold, int i, amp_tensor *t);
void graph_fold_retain(struct graph_fold *fold);
void graph_fold_free(struct graph_fold *fold);
int graph_folds_take(graph_run *run); /* the values of folds as they are now */
/* Runs a chain by blocks, or in one launch. 0: it must run node by node; 1: done; <0: error. */
int graph_run_chain(graph_run *run, const graph_chain *chain);
/* Products: found after the passes; the one at this node if it may be offered more in this run, NULL: not. */
int graph_products_find(amp_graph *g);
/* A product whose kernel may keep its weight in a form of its own. */
struct graph_product {
  int32_t node, added; /* the product; the value that is added to it, -1: none */
  amp_tensor *packed;
  uint64_t form;
  int64_t id; /* the weight that it was made of: tensor, memory and version */
  const void *data;
  uint32_t version;
};

void graph_products_free(amp_graph *g);
int graph_products_shed(int device); /* memory is short: gives up what products keep */
struct graph_product *graph_product_at(const amp_graph *g, int node);
void graph_product_offer(const graph_run *run, struct graph_product *product, amp_offer *offer);
void graph_product_keep(amp_graph *g, struct graph_product *product, const amp_offer *offer);
/* How many nodes after it the kernel has done, whose result then is there. */
int graph_product_done(graph_run *run, const struct graph_product *product, const amp_offer *offer);
int graph_hash(const char *text, int room); /* a place in a table of `room` places, a power of two */
int graph_place(amp_graph *g, int device);  /* move.c: all that is on the graph's device goes to another one */

#endif
