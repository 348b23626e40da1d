/*
** graph/pass_join.h: a match of a pattern, for the functions of the table (graph/pass_join_rows.c).
**
** Patterns are text: ROW(operands), each an operand of the row in order: a letter is a value (the same letter the same
** value; a capital a number), a number is itself, another ROW(...) is the node that makes the operand.
**
**   x?      may be absent
**   ROW*    attributes are looked at by the table's function; else they must be the row's defaults
**   ROW!    the node's result may have other uses: the joined node's second result takes its place
**
** Operands of add and mul may stand in either order.
*/
#ifndef AMP_GRAPH_PASS_JOIN_H
#define AMP_GRAPH_PASS_JOIN_H
#include "graph/pass.h"

enum { JOIN_NODES = 12, JOIN_VALUES = 26 };
enum {
  JOIN_CPU = 1, /* where it is no slower */
  JOIN_GPU = 2,
  JOIN_REGION = 4, /* dtypes are the same in the region of the recording alone */
  JOIN_LEAN = 8    /* its backward needs more memory on a CPU and is no quicker: not in steps that are known to train */
};

typedef struct join {
  const graph_pass *pass;
  int node[JOIN_NODES]; /* matched, by their places in the pattern; 0 is the one that the joined node replaces */
  int nnode;
  int32_t value[2][JOIN_VALUES]; /* of small and capital letters, -1: absent */
  bool bound[2][JOIN_VALUES];
  amp_slot attrs[AMP_MAX_SLOT]; /* of the joined node: the defaults, to be changed */
} join;

typedef struct join_row {
  const char *pattern, *result;
  bool (*fits)(join *j); /* may say no, and sets attributes; NULL: it fits */
  int where;             /* JOIN_... */
} join_row;
extern const join_row graph_join_rows[];
extern const int graph_join_count;

static inline const amp_graph_node *join_node(const join *j, int i) { return &j->pass->graph->nodes[j->node[i]]; }
static inline const amp_graph_value *join_value(const join *j, char letter)
{
  return pass_value(j->pass, j->value[letter < 'a'][letter < 'a' ? letter - 'A' : letter - 'a']);
}
double join_number(const join *j, char letter);
bool join_same_size(const join *j, const amp_graph_value *a, const amp_graph_value *b); /* in all runs */

#endif
