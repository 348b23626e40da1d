/*
** graph/kept.c: results that are kept between runs: those of the first nodes, which depend on nothing but parameters,
** buffers and constants. They serve while all that these nodes read is as it was (the same tensor, memory and version)
** and the run is in the same region, on the same stream, and wants no gradient of it. Otherwise the nodes run.
**
** What is kept is one block that counts who reads it; a run that finds it stale puts another in its place, so threads
** never see a part of one.
*/
#include <stdlib.h>
#include "base/locks.h"
#include "graph/graph.h"

typedef struct kept_read {
  int64_t id;
  const void *data;
  uint32_t version;
} kept_read;

struct graph_kept {
  int refs;
  modes mode;
  int stream;
  int nread, nresult;
  kept_read *read;
  int32_t *value;
  amp_tensor **result;
};

static void drop(struct graph_kept *kept)
{
  if (kept == NULL || __atomic_sub_fetch(&kept->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  for (int i = 0; i < kept->nresult; i++) amp__free(kept->result[i]);
  free(kept->read);
  free(kept->value);
  free(kept->result);
  free(kept);
}

void graph_kept_free(struct graph_kept *kept) { drop(kept); }

static struct graph_kept *take(amp_graph *g)
{
  amp__lock(AMP_LOCK_GRAPHS);
  struct graph_kept *kept = g->kept;
  if (kept) __atomic_fetch_add(&kept->refs, 1, __ATOMIC_RELAXED);
  amp__unlock(AMP_LOCK_GRAPHS);
  return kept;
}

/* Takes the caller's count. */
static void put(amp_graph *g, struct graph_kept *kept)
{
  amp__lock(AMP_LOCK_GRAPHS);
  struct graph_kept *before = g->kept;
  g->kept = kept;
  amp__unlock(AMP_LOCK_GRAPHS);
  drop(before);
}

/* -- What the nodes read ------------------------------------------------------------- */

/* i-th operand of the first nodes that the graph itself holds, *node and *at going on; NULL: no more */
static amp_tensor *next_read(const graph_run *run, int *node, int *at)
{
  const amp_graph *g = run->graph;
  for (; *node < g->nkept; ++*node, *at = 0) {
    const amp_graph_node *n = &g->nodes[*node];
    while (*at < n->nin) {
      int32_t value = n->in[(*at)++];
      amp_tensor *t = value >= 0 && g->values[value].info.tensor ? run->value[value] : NULL;
      if (t && !(t->flags & AMP_T_NUMBER)) return t;
    }
  }
  return NULL;
}

/* May results be kept in this run, and where does it work? How many tensors the nodes read; -1: they may not. */
static int count_reads(const graph_run *run, int *stream)
{
  amp_state *S = amp__S;
  int count = 0, node = 0, at = 0;
  *stream = 0;
  if (amp__capturing || amp__tracing()) return -1;
  for (amp_tensor *t; (t = next_read(run, &node, &at)) != NULL; count++) {
    amp__refresh(t);
    if (S->grad_mode && amp__tracked(t)) return -1;
    if (t->device == AMP_CPU) continue;
    if (t->device_index != 0) return -1;
    *stream = amp__stream_here(t->device, t->device_index);
  }
  return count;
}

static kept_read read_of(const amp_tensor *t) { return (kept_read){ t->id, amp__data(t), amp__version(t) }; }

static bool same_modes(const modes *a, const modes *b)
{
  return (a->grad != 0) == (b->grad != 0) && a->autocast_on == b->autocast_on
         && (!a->autocast_on || memcmp(a->autocast, b->autocast, sizeof a->autocast) == 0);
}

static bool current(const graph_run *run, const struct graph_kept *kept, int stream, int nread)
{
  modes now = graph_modes(amp__S);
  if (kept->nread != nread || kept->stream != stream || !same_modes(&kept->mode, &now)) return false;
  int node = 0, at = 0, i = 0;
  for (amp_tensor *t; (t = next_read(run, &node, &at)) != NULL; i++) {
    kept_read r = read_of(t);
    if (r.id != kept->read[i].id || r.data != kept->read[i].data || r.version != kept->read[i].version) return false;
  }
  return true;
}

/* -- Runs ------------------------------------------------------------------------------ */

static struct graph_kept *note_reads(const graph_run *run, int stream, int nread)
{
  const amp_graph *g = run->graph;
  struct graph_kept *kept = calloc(1, sizeof *kept);
  if (kept == NULL) return NULL;
  kept->refs = 1;
  kept->mode = graph_modes(amp__S);
  kept->stream = stream;
  kept->nread = nread;
  kept->read = malloc(sizeof *kept->read * (size_t)(nread + 1));
  kept->value = malloc(sizeof *kept->value * (size_t)(g->nvalue + 1));
  kept->result = malloc(sizeof *kept->result * (size_t)(g->nvalue + 1));
  if (!kept->read || !kept->value || !kept->result) {
    drop(kept);
    return NULL;
  }
  int node = 0, at = 0, i = 0;
  for (amp_tensor *t; (t = next_read(run, &node, &at)) != NULL; i++) kept->read[i] = read_of(t);
  return kept;
}

static void note_results(const graph_run *run, struct graph_kept *kept)
{
  const amp_graph *g = run->graph;
  for (int k = 0; k < g->nkept; k++)
    for (int i = 0; i < g->nodes[k].nout; i++) {
      int32_t value = g->nodes[k].out[i];
      amp_tensor *t = value >= 0 ? run->value[value] : NULL;
      if (t == NULL) continue;
      if (!(t->flags & AMP_T_VIEW) && amp__is_float(t->dtype)) t->flags |= AMP_T_WEIGHT; /* regions keep its cast */
      amp__retain(t);
      kept->value[kept->nresult] = value;
      kept->result[kept->nresult++] = t;
    }
}

bool graph_kept_take(graph_run *run, struct graph_kept **kept)
{
  amp_graph *g = (amp_graph *)(intptr_t)run->graph;
  int stream, nread = count_reads(run, &stream);
  *kept = NULL;
  if (nread < 0) return false;
  struct graph_kept *last = take(g);
  bool good = last && current(run, last, stream, nread);
  for (int i = 0; good && i < last->nresult; i++) {
    amp__retain(last->result[i]);
    run->value[last->value[i]] = last->result[i];
  }
  drop(last);
  if (!good) *kept = note_reads(run, stream, nread);
  return good;
}

void graph_kept_note(const graph_run *run, struct graph_kept *kept)
{
  if (kept == NULL) return;
  note_results(run, kept);
  put((amp_graph *)(intptr_t)run->graph, kept);
}
