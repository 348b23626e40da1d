/*
** graph/weights.c: reads safetensors files for load.c.
**
** The file may be anyone's: its header must describe every byte of the data once, and only what a graph asks for is
** read, straight into its tensor. What Lua reads is read by amp.io.safetensors, by the same rules.
*/
#include <stdlib.h>
#include <unistd.h>
#include "graph/weights.h"

enum { MAX_HEADER = 100000000, FAR = 10000 /* places from its own that a name may lie */ };
static const char METADATA[] = "__metadata__";

/* -- Names ------------------------------------------------------------------- */

static struct name_place *place_of(const name_map *map, const char *name)
{
  int at = graph_hash(name, map->room);
  while (map->at[at].name && strcmp(map->at[at].name, name) != 0) at = (at + 1) & (map->room - 1);
  return &map->at[at];
}

int map_add(name_map *map, const char *name, int32_t value)
{
  if (map->count * 2 >= map->room) {
    name_map wider = { NULL, map->count, map->room ? map->room * 2 : 64 };
    if ((wider.at = calloc((size_t)wider.room, sizeof *wider.at)) == NULL)
      return amp__nomem(sizeof *wider.at * (size_t)wider.room);
    for (int i = 0; i < map->room; i++)
      if (map->at[i].name) *place_of(&wider, map->at[i].name) = map->at[i];
    free(map->at);
    *map = wider;
  }
  struct name_place *place = place_of(map, name);
  if (place->name) return 1;
  if ((((int)(place - map->at) - graph_hash(name, map->room)) & (map->room - 1)) > FAR)
    return amp__fail(AMP_E_VALUE, "its names are made to collide"); /* they would take for ever */
  *place = (struct name_place){ name, value };
  map->count++;
  return 0;
}

int32_t map_find(const name_map *map, const char *name)
{
  const struct name_place *place = map->room ? place_of(map, name) : NULL;
  return place && place->name ? place->value : -1;
}

/* -- JSON that is checked ------------------------------------------------------- */

int json_fields(const json *j, uint32_t object, const char *what, const char *const *keys, int n, uint32_t *at)
{
  for (int k = 0; k < n; k++) at[k] = 0;
  if (json_kind_of(j, object) != JSON_OBJECT) return amp__fail(AMP_E_VALUE, "%.80s is no object", what);
  for (uint32_t i = object + 1; i < j->items[object].next; i = j->items[i + 1].next) {
    const char *key = json_text(j, i);
    int k = 0;
    while (k < n && strcmp(keys[k], key) != 0) k++;
    if (k == n) return amp__fail(AMP_E_VALUE, "%.80s has an unknown field '%.80s'", what, key);
    if (at[k]) return amp__fail(AMP_E_VALUE, "%.80s has the field '%s' twice", what, key);
    at[k] = i + 1;
  }
  return 0;
}

int json_sizes(const json *j, uint32_t list, const char *what, int dtype, int *ndim, int64_t *size)
{
  int64_t count;
  *ndim = 0;
  if (list == 0 || json_kind_of(j, list) != JSON_ARRAY || j->items[list].length > AMP_MAX_DIM)
    return amp__fail(AMP_E_VALUE, "'%.80s' has no list of up to %d sizes", what, AMP_MAX_DIM);
  for (uint32_t i = list + 1; i < j->items[list].next; i = j->items[i].next, ++*ndim)
    if (!json_integer(j, i, &size[*ndim]) || size[*ndim] < 0)
      return amp__fail(AMP_E_VALUE, "'%.80s' has an impossible shape", what);
  if (amp__check_size(*ndim, size, dtype, &count) < 0)
    return amp__fail(AMP_E_VALUE, "'%.80s' has an impossible shape", what);
  return 0;
}

/* -- Header -------------------------------------------------------------------- */

static int dtype_of(const char *name)
{
  static const char *const names[AMP_DTYPE_COUNT]
      = { "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2" };
  _Static_assert(AMP_DTYPE_COUNT == 12, "each dtype has its name in safetensors");
  for (int t = 0; t < AMP_DTYPE_COUNT; t++)
    if (strcmp(names[t], name) == 0) return t;
  return -1;
}

static int read_weight(weights_file *f, uint32_t item, weight *w)
{
  static const char *const keys[] = { "dtype", "shape", "data_offsets" };
  const json *j = &f->header;
  uint32_t at[3];
  int rc = json_fields(j, item, w->name, keys, 3, at);
  if (rc < 0) return rc;
  const char *dtype = at[0] ? json_text(j, at[0]) : NULL;
  if (dtype == NULL) return amp__fail(AMP_E_VALUE, "'%.80s' has no dtype", w->name);
  w->dtype = dtype_of(dtype);
  rc = json_sizes(j, at[1], w->name, w->dtype < 0 ? AMP_UINT8 : w->dtype, &w->ndim, w->size);
  if (rc < 0) return rc;
  uint32_t offsets = at[2];
  if (!offsets || json_kind_of(j, offsets) != JSON_ARRAY || j->items[offsets].length != 2
      || !json_integer(j, offsets + 1, &w->first) || !json_integer(j, offsets + 2, &w->last) || w->first < 0
      || w->last < w->first)
    return amp__fail(AMP_E_VALUE, "'%.80s' has impossible data_offsets", w->name);
  if (w->last > f->data)
    return amp__fail(AMP_E_VALUE, "'%.80s' ends at byte %lld of the data, but there are %lld: the file is cut off",
                     w->name, (long long)w->last, (long long)f->data);
  int64_t bytes = w->dtype < 0 ? 0 : amp__dtype_size[w->dtype];
  for (int d = 0; d < w->ndim; d++) bytes *= w->size[d];
  if (w->dtype >= 0 && bytes != w->last - w->first)
    return amp__fail(AMP_E_VALUE, "'%.80s' is %s of %s and needs %lld bytes, but its data_offsets span %lld", w->name,
                     dtype, amp__shape_str(w->ndim, w->size), (long long)bytes, (long long)(w->last - w->first));
  return 0;
}

static int by_place(const void *a, const void *b)
{
  const weight *const *v = a, *const *w = b;
  if ((*v)->first != (*w)->first) return (*v)->first < (*w)->first ? -1 : 1;
  return (*v)->last < (*w)->last ? -1 : (*v)->last > (*w)->last;
}

/* Every byte of the data belongs to one tensor. */
static int check_places(const weights_file *f)
{
  const weight **order = malloc(sizeof *order * (size_t)(f->count + 1));
  if (order == NULL) return amp__nomem(sizeof *order * (size_t)f->count);
  for (int i = 0; i < f->count; i++) order[i] = &f->weights[i];
  qsort(order, (size_t)f->count, sizeof *order, by_place);
  int64_t at = 0;
  int rc = 0;
  for (int i = 0; rc == 0 && i < f->count; i++) {
    if (order[i]->first < at)
      rc = amp__fail(AMP_E_VALUE, "the data of '%.80s' and '%.80s' overlap", order[i - 1]->name, order[i]->name);
    else if (order[i]->first > at)
      rc = amp__fail(AMP_E_VALUE, "%lld bytes before '%.80s' belong to no tensor", (long long)(order[i]->first - at),
                     order[i]->name);
    at = order[i]->last;
  }
  if (rc == 0 && at < f->data)
    rc = amp__fail(AMP_E_VALUE, "%lld bytes at the end belong to no tensor", (long long)(f->data - at));
  free(order);
  return rc;
}

static int read_metadata(weights_file *f, uint32_t object)
{
  const json *j = &f->header;
  if (json_kind_of(j, object) != JSON_OBJECT) return amp__fail(AMP_E_VALUE, "%s is no table of strings", METADATA);
  for (uint32_t i = object + 1; i < j->items[object].next; i = j->items[i + 1].next) {
    if (json_kind_of(j, i + 1) != JSON_STRING) return amp__fail(AMP_E_VALUE, "%s is no table of strings", METADATA);
    bool sum = strcmp(json_text(j, i), "amp.graph.crc32") == 0;
    if (!sum && strcmp(json_text(j, i), "amp.graph") != 0) continue;
    char **to = sum ? &f->sum : &f->graph;
    if (*to) return amp__fail(AMP_E_VALUE, "it has two graphs");
    *to = j->text + j->items[i + 1].at;
  }
  return 0;
}

static int read_weights(weights_file *f)
{
  const json *j = &f->header;
  int rc = 0;
  if (json_kind_of(j, 0) != JSON_OBJECT) return amp__fail(AMP_E_VALUE, "its header is no JSON object");
  f->weights = calloc((size_t)j->items[0].length + 1, sizeof *f->weights);
  if (f->weights == NULL) return amp__nomem(sizeof *f->weights * j->items[0].length);
  bool metadata = false;
  for (uint32_t i = 1; rc == 0 && i < j->items[0].next; i = j->items[i + 1].next) {
    const char *name = json_text(j, i);
    if (strcmp(name, METADATA) == 0) {
      if (metadata) return amp__fail(AMP_E_VALUE, "its header has %s twice", METADATA);
      metadata = true;
      rc = read_metadata(f, i + 1);
      continue;
    }
    f->weights[f->count].name = name;
    rc = map_add(&f->names, name, f->count);
    if (rc > 0) rc = amp__fail(AMP_E_VALUE, "its header has the tensor '%.80s' twice", name);
    if (rc == 0) rc = read_weight(f, i + 1, &f->weights[f->count++]);
  }
  return rc < 0 ? rc : check_places(f);
}

int weights_open(weights_file *f, const char *path)
{
  int64_t size, length;
  uint64_t bytes = 0;
  uint8_t head[9];
  *f = (weights_file){ .fd = amp_file_open(amp__S, path, &size) };
  if (f->fd < 0) return f->fd;
  if (size < 9) return amp__fail(AMP_E_VALUE, "it has %lld bytes and is no safetensors file", (long long)size);
  int rc = amp_file_read(amp__S, f->fd, head, 9, 0);
  if (rc < 0) return rc;
  for (int i = 7; i >= 0; i--) bytes = bytes << 8 | head[i];
  length = bytes > MAX_HEADER ? MAX_HEADER + 1 : (int64_t)bytes;
  if (length == 0 || length > MAX_HEADER || length + 8 > size)
    return amp__fail(AMP_E_VALUE,
                     "it is no safetensors file, or cut off: its header is said to be %llu bytes long, and it has %lld",
                     (unsigned long long)bytes, (long long)size);
  if (head[8] != '{') return amp__fail(AMP_E_VALUE, "its header does not begin with '{'");
  f->base = 8 + length;
  f->data = size - f->base;
  f->text = malloc((size_t)length + 1);
  if (f->text == NULL) return amp__nomem((size_t)length + 1);
  if ((rc = amp_file_read(amp__S, f->fd, f->text, length, 8)) < 0) return rc;
  f->text[length] = 0;
  if ((rc = json_parse(&f->header, f->text, (size_t)length)) < 0) return rc;
  return read_weights(f);
}

void weights_close(weights_file *f)
{
  for (int i = 0; f->weights && i < f->count; i++) amp__free(f->weights[i].tensor);
  if (f->fd >= 0) close(f->fd);
  json_free(&f->header);
  free(f->weights);
  free(f->names.at);
  free(f->text);
}

amp_tensor *weights_get(weights_file *f, int32_t i)
{
  weight *w = &f->weights[i];
  amp_ref made = { NULL };
  if (w->tensor) return w->tensor;
  if (w->dtype < 0) {
    amp__fail(AMP_E_DTYPE, "'%.80s' has a dtype that amp has not", w->name);
    return NULL;
  }
  if (amp_from_file(amp__S, &made, f->fd, f->base + w->first, w->ndim, w->size, w->dtype, 0, NULL) < 0) return NULL;
  return w->tensor = made.t;
}
