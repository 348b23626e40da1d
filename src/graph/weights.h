/*
** graph/weights.h: a safetensors file, as a graph's is read: tensors by name, and the text in its metadata.
*/
#ifndef AMP_GRAPH_WEIGHTS_H
#define AMP_GRAPH_WEIGHTS_H
#include "graph/graph.h"
#include "graph/json.h"

/* Numbers by name; the names are borrowed. */
typedef struct name_map {
  struct name_place {
    const char *name;
    int32_t value;
  } * at;
  int count, room;
} name_map;
int map_add(name_map *map, const char *name, int32_t value); /* 1: it is there already */
int32_t map_find(const name_map *map, const char *name);     /* -1: it is not there */

typedef struct weight {
  const char *name;
  int32_t dtype, ndim; /* dtype -1: one that amp has not */
  int64_t size[AMP_MAX_DIM];
  int64_t first, last; /* bytes of the data */
  amp_tensor *tensor;  /* once it was asked for */
} weight;

typedef struct weights_file {
  int fd;
  int64_t base, data; /* where the data begin, their bytes */
  char *text;         /* of the header */
  json header;
  weight *weights;
  int count;
  name_map names;
  char *graph, *sum; /* in text: the graph, NULL: the file holds none; its check sum, NULL: it has none */
} weights_file;

int weights_open(weights_file *f, const char *path); /* weights_close follows, whatever comes back */
void weights_close(weights_file *f);
amp_tensor *weights_get(weights_file *f, int32_t i); /* on the CPU, borrowed; NULL: error */

/* The values of an object's keys, 0 where one is missing. What else stands there, or twice, is an error that names
** `what`. */
int json_fields(const json *j, uint32_t object, const char *what, const char *const *keys, int n, uint32_t *at);
/* A list of sizes. */
int json_sizes(const json *j, uint32_t list, const char *what, int dtype, int *ndim, int64_t *size);

#endif
