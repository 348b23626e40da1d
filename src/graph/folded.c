/*
** graph/folded.c: constants that a pass computed of constants which others have too, such as a tensor that the function
** of a graph sees. Where such a tensor is written, the next run computes them again.
**
**   mask (a script's)  --neg-->  value     what the graph holds of neg's result is good for one version of mask
**
** A fold remembers the call and what it read: tensor, memory and version. Folds of folds refer to one another. A run
** takes the results with counts of its own, so threads may share the graph.
*/
#include <stdlib.h>
#include "base/locks.h"
#include "graph/graph.h"

typedef struct fold_read {
  amp_tensor *tensor;      /* NULL: absent, or a fold's */
  struct graph_fold *fold; /* whose result `which` is read */
  int which;
  int64_t id;
  const void *data;
  uint32_t version;
} fold_read;

struct graph_fold {
  int refs;
  int op, nin;
  fold_read *read; /* [nin] */
  amp_slot *attrs;
  amp_tensor *out[AMP_MAX_OUT];
};

/* -- Computing ------------------------------------------------------------------------ */

int graph_compute(int op, amp_tensor *const *in, int nin, const amp_slot *attrs, amp_tensor **out)
{
  amp__plain plain = amp__plain_begin();
  int rc;
  if (op == AMP_G_DETACH) {
    amp_ref from = { in[0] }, to = { NULL };
    rc = amp_detach(amp__S, &to, &from);
    out[0] = to.t;
  } else rc = amp__dispatch(op, 0, in, nin, out, attrs);
  for (int i = 0; rc == 0 && i < AMP_MAX_OUT; i++) {
    if (out[i] == NULL || (out[i]->flags & AMP_T_CONTIGUOUS)) continue;
    amp_tensor *copy[AMP_MAX_OUT] = { NULL };
    amp_slot order[AMP_MAX_SLOT] = { { 0 } };
    ((args_clone *)order)->memory_format = CLONE_MEMORY_FORMAT_CONTIGUOUS;
    rc = amp__dispatch(AMP_OP_clone, 0, &out[i], 1, copy, order);
    amp__free(out[i]);
    out[i] = copy[0];
  }
  amp__plain_end(plain);
  return rc;
}

/* -- Folds ------------------------------------------------------------------------------ */

struct graph_fold *graph_fold_new(int op, int nin, const amp_slot *attrs)
{
  int nslot = op >= 0 ? amp__ops[op].info.nslot : 0;
  struct graph_fold *fold = calloc(1, sizeof *fold);
  if (fold == NULL) return NULL;
  fold->refs = 1;
  fold->op = op;
  fold->nin = nin;
  fold->read = calloc((size_t)nin + 1, sizeof *fold->read);
  fold->attrs = malloc(sizeof *fold->attrs * (size_t)(nslot + 1));
  if (fold->read == NULL || fold->attrs == NULL) {
    graph_fold_free(fold);
    return NULL;
  }
  if (nslot) memcpy(fold->attrs, attrs, sizeof *attrs * (size_t)nslot);
  return fold;
}

void graph_fold_retain(struct graph_fold *fold) { fold->refs++; }

void graph_fold_free(struct graph_fold *fold)
{
  if (fold == NULL || --fold->refs > 0) return;
  for (int i = 0; fold->read && i < fold->nin; i++) {
    amp__free(fold->read[i].tensor);
    graph_fold_free(fold->read[i].fold);
  }
  for (int i = 0; i < AMP_MAX_OUT; i++) amp__free(fold->out[i]);
  free(fold->read);
  free(fold->attrs);
  free(fold);
}

static void note(fold_read *read, const amp_tensor *t)
{
  read->id = t->id;
  read->data = t->storage->data;
  read->version = amp__version(t);
}

void graph_fold_reads(struct graph_fold *fold, int i, amp_tensor *t, struct graph_fold *of, int which)
{
  fold_read *read = &fold->read[i];
  note(read, t);
  read->fold = of;
  read->which = which;
  if (of) of->refs++;
  else {
    amp__retain(t);
    read->tensor = t;
  }
}

void graph_fold_gives(struct graph_fold *fold, int i, amp_tensor *t)
{
  amp__retain(t);
  fold->out[i] = t;
}

static int take(struct graph_fold *fold, amp_tensor **out);

/* Its operands as they are now, counted. */
static int take_reads(struct graph_fold *fold, amp_tensor **in)
{
  for (int i = 0; i < fold->nin; i++) {
    const fold_read *read = &fold->read[i];
    amp_tensor *made[AMP_MAX_OUT] = { NULL };
    int rc = read->fold ? take(read->fold, made) : 0;
    if (rc < 0) return rc;
    in[i] = read->fold ? made[read->which] : read->tensor;
    if (in[i]) amp__retain(in[i]);
    for (int k = 0; k < AMP_MAX_OUT; k++) amp__free(made[k]);
    if (in[i]) amp__refresh(in[i]);
  }
  return 0;
}

/* Gives counted results if they are of these operands. */
static bool current(struct graph_fold *fold, amp_tensor *const *in, amp_tensor **out)
{
  bool good = true;
  amp__lock(AMP_LOCK_GRAPHS);
  for (int i = 0; good && i < fold->nin; i++) {
    fold_read now = { 0 };
    if (in[i] == NULL || (in[i]->flags & AMP_T_NUMBER)) continue;
    note(&now, in[i]);
    const fold_read *read = &fold->read[i];
    good = now.id == read->id && now.data == read->data && now.version == read->version;
  }
  for (int k = 0; good && k < AMP_MAX_OUT; k++) {
    out[k] = fold->out[k];
    if (out[k]) amp__retain(out[k]);
  }
  amp__unlock(AMP_LOCK_GRAPHS);
  return good;
}

static void put(struct graph_fold *fold, amp_tensor *const *in, amp_tensor *const *out)
{
  amp_tensor *before[AMP_MAX_OUT];
  amp__lock(AMP_LOCK_GRAPHS);
  for (int i = 0; i < fold->nin; i++)
    if (in[i]) note(&fold->read[i], in[i]);
  for (int k = 0; k < AMP_MAX_OUT; k++) {
    before[k] = fold->out[k];
    fold->out[k] = out[k];
    if (out[k]) amp__retain(out[k]);
  }
  amp__unlock(AMP_LOCK_GRAPHS);
  for (int k = 0; k < AMP_MAX_OUT; k++) amp__free(before[k]);
}

static int take(struct graph_fold *fold, amp_tensor **out)
{
  amp_tensor **in = calloc((size_t)fold->nin + 1, sizeof *in);
  if (in == NULL) return amp__nomem(sizeof *in * (size_t)fold->nin);
  int rc = take_reads(fold, in);
  if (rc == 0 && !current(fold, in, out)) {
    rc = graph_compute(fold->op, in, fold->nin, fold->attrs, out);
    if (rc == 0) put(fold, in, out);
  }
  for (int i = 0; i < fold->nin; i++) amp__free(in[i]);
  free(in);
  return rc;
}

/* -- Runs ------------------------------------------------------------------------------- */

int graph_folds_take(graph_run *run)
{
  const amp_graph *g = run->graph;
  for (int i = 0; i < g->nvalue; i++) {
    const graph_value *v = &g->values[i];
    if (v->fold == NULL) continue;
    amp_tensor *out[AMP_MAX_OUT] = { NULL };
    int rc = take(v->fold, out);
    if (rc < 0) return rc;
    if (out[v->fold_result] != v->info.tensor) {
      run->value[i] = out[v->fold_result];
      out[v->fold_result] = NULL;
    }
    for (int k = 0; k < AMP_MAX_OUT; k++) amp__free(out[k]);
  }
  return 0;
}

int amp_graph_refresh(amp_state *S, amp_graph *g)
{
  AMP_ENTER(S);
  if (g == NULL || !g->finished) return amp__fail(AMP_E_STATE, "the graph is not finished");
  for (int i = 0; i < g->nvalue; i++) {
    graph_value *v = &g->values[i];
    if (v->fold == NULL) continue;
    amp_tensor *out[AMP_MAX_OUT] = { NULL };
    int rc = take(v->fold, out);
    if (rc < 0) return rc;
    amp__free(v->info.tensor);
    v->info.tensor = out[v->fold_result];
    out[v->fold_result] = NULL;
    for (int k = 0; k < AMP_MAX_OUT; k++) amp__free(out[k]);
  }
  return 0;
}
