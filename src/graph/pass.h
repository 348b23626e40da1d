/*
** graph/pass.h: what passes over a graph share.
**
**   optimize.c    the passes in their order
**   pass.c        opens a graph for a pass (which values lie in one storage, who reads and who writes them), closes it
**                 (nodes that went and values that nothing refers to leave no holes)
**   pass_plain.c  dead code, equal nodes, constants
**   pass_fold.c   batch norm in eval mode into the product before it
**   pass_join.c   nodes that one row does together; pass_join_rows.c is the table of patterns
**   pass_layout.c convolutions with channels last
**   pass_product.c  products whose weights may be kept in a kernel's own form
**   pass_chain.c  runs of elementwise rows, and the nodes whose results are kept between runs
**
** A pass marks nodes dead, rewrites nodes in their place and adds new ones; numbers stay what they are until it closes.
** No node moves over one that writes what it reads.
*/
#ifndef AMP_GRAPH_PASS_H
#define AMP_GRAPH_PASS_H
#include "graph/graph.h"

/* What is known of a class of values that may lie in one storage. */
enum {
  CLASS_OUTSIDE = 1, /* inputs, parameters, buffers, constants: others have it too */
  CLASS_INPUT = 2,   /* the caller may give any storage for it */
  CLASS_WRITTEN = 4,
  CLASS_OUTPUT = 8
};

typedef struct graph_write {
  int32_t node, storage; /* in rising order of nodes */
} graph_write;

typedef struct graph_pass {
  amp_graph *graph;
  int nvalue, nnode;   /* as they were when it was opened */
  int32_t *storage;    /* [nvalue] the class of each value, a value's number */
  uint8_t *storage_is; /* [nvalue] CLASS_... of a class */
  int32_t *user_from;  /* [nvalue + 1] into user */
  int32_t *user;       /* nodes that read or write each value, in rising order */
  graph_write *write;
  int nwrite;
  bool writes_input; /* some node writes what lies in an input */
  uint8_t *sized;    /* [nnode] attributes follow free sizes */
  uint8_t *number;   /* [nvalue] the number follows free sizes */
  uint8_t *dead;     /* [node_room] */
  double *place;     /* [node_room] nodes are put in order by this; their own number at first */
  int node_room;
  int32_t *moved; /* [nnode] the pass's own, or NULL: where nodes are when it is closed, -1: gone */
  int changes;    /* anything to do when it is closed */
} graph_pass;

int pass_open(graph_pass *p, amp_graph *g);
int pass_close(graph_pass *p, int rc); /* gives rc, or the error of its own */

/* -- Asking ---------------------------------------------------------------------- */

bool pass_draws(const amp_graph_node *n);                               /* takes random numbers */
bool pass_changes(const amp_graph_node *n);                             /* writes any of its operands, or an OUT */
bool pass_is_output(const graph_pass *p, int value);                    /* itself, not what it lies in */
bool pass_same_modes(const amp_graph_node *a, const amp_graph_node *b); /* grad mode and regions */
/* May a node with this operand read it at `late` rather than at `early`? */
bool pass_unwritten(const graph_pass *p, int value, int early, int late);
static inline bool pass_class(const graph_pass *p, int value, int flags)
{
  return (p->storage_is[p->storage[value]] & flags) != 0;
}
static inline const amp_op_desc *pass_row(const amp_graph_node *n) { return n->op >= 0 ? &amp__ops[n->op] : NULL; }
static inline const amp_graph_value *pass_value(const graph_pass *p, int value)
{
  return &p->graph->values[value].info;
}
bool pass_only_user(const graph_pass *p, int value, int node); /* reads it; nothing else does, and it is no output */
/* Values that depend on nothing but parameters, buffers and constants; to be freed. NULL: no memory. */
bool *pass_held(const graph_pass *p);
bool pass_number(const graph_pass *p, int value, double *number); /* a number that is the same in all runs */

/* -- Changing --------------------------------------------------------------------- */

void pass_kill(graph_pass *p, int node);
/* The node calls another row: operands and attributes (NULL: the row's defaults) are copied; its first result stays. */
int pass_rewrite(graph_pass *p, int node, int op, const int32_t *in, int nin, const amp_slot *attrs);
/* A new node of one result, like value `like` but for its shape (ndim < 0: that too), in the modes of node `as`. Gives
** the result. */
int pass_add(graph_pass *p, int op, const int32_t *in, int nin, const amp_slot *attrs, double place, int as,
             const amp_graph_value *result);
int pass_add_number(graph_pass *p, double number); /* a value */

/* -- The passes ---------------------------------------------------------------------- */

int pass_made(amp_graph *g); /* copies of constants that nothing writes or gives away */
int pass_dead(amp_graph *g);
int pass_common(amp_graph *g);
int pass_constants(amp_graph *g, bool alone); /* alone: only constants that nobody but the graph has */
int pass_fold(amp_graph *g);
/* anywhere: rows for other devices too; region: runs are in the region of the recording */
int pass_join(amp_graph *g, bool anywhere, bool region);
int pass_layout(amp_graph *g);
int pass_chains(amp_graph *g, bool move); /* move: nodes may, to be beside others */
int pass_kept(amp_graph *g);              /* puts nodes that depend on what the graph holds alone first */

#endif
