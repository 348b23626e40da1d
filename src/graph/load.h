/*
** graph/load.h: what the parts of the reader of graphs share (load.c, load_attrs.c).
*/
#ifndef AMP_GRAPH_LOAD_H
#define AMP_GRAPH_LOAD_H
#include "graph/weights.h"

typedef struct loader {
  weights_file file;
  json json;       /* the graph's */
  name_map values; /* by their names in the file, which are those in the graph */
  name_map nodes, ops;
  amp_graph *graph;
} loader;

int load_add_name(loader *l, const char *name, int value);
int load_device(const json *j, uint32_t item, const char *where);          /* type * 256 + index */
int load_flag(const json *j, uint32_t item, const char *where, bool *out); /* false where there is none */
/* load_attrs.c */
int load_attributes(loader *l, uint32_t object, const amp_graph_node *n, amp_slot *attrs);
int load_size(loader *l, uint32_t item);

#endif
