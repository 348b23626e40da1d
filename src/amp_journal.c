/*
** amp_journal.c: what a function changed in tensors that were there before it.
**
** While a journal is open, dispatch notes each such storage before the first op
** that writes to it: its bytes and its version. Whoever runs the function once
** more (amp.checkpoint) goes back to that state first and forward again after:
**
**   amp_journal_back     bytes and versions as before the function
**   the function, again  makes the same changes, with the same versions
**   amp_journal_forth    bytes and versions as they were before amp_journal_back
**
** A storage knows in which epoch it was made; each journal begins an epoch, so
** what the function makes itself is not noted. Journals nest. Owns its copies
** and a count of each storage. It sees what ops write, not what is written
** through a pointer.
*/
#include <stdlib.h>
#include "amp_core.h"

typedef struct entry {
  amp_storage *s;          /* counted */
  amp_tensor *was, *now;   /* its bytes before the function; before amp_journal_back, NULL: it is not back */
  uint32_t version, version_now;
} entry;

struct amp_journal {
  amp_journal *outer;
  entry *list;
  int n, cap;
  uint32_t epoch;
};

_Atomic uint32_t amp__epoch = 1;

amp_journal *amp_journal_new(amp_state *S)
{
  AMP_ENTER(S);
  amp_journal *j = calloc(1, sizeof *j);
  if (j == NULL) { amp__nomem(sizeof *j); return NULL; }
  j->epoch = atomic_fetch_add_explicit(&amp__epoch, 1, memory_order_relaxed) + 1;
  return j;
}

void amp_journal_free(amp_journal *j)
{
  if (j == NULL) return;
  for (int i = 0; i < j->n; i++) {
    amp__free(j->list[i].was);
    amp__free(j->list[i].now);
    amp__storage_free(j->list[i].s);
  }
  free(j->list);
  free(j);
}

/* Opened twice, or shut twice, as after an interrupt in between, it is opened or shut once. */
void amp_journal_open(amp_state *S, amp_journal *j)
{
  for (const amp_journal *k = S->priv->journal; k; k = k->outer) if (k == j) return;
  j->outer = S->priv->journal;
  S->priv->journal = j;
  __atomic_add_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
}

void amp_journal_shut(amp_state *S, amp_journal *j)
{
  amp_journal **at = &S->priv->journal;
  while (*at && *at != j) at = &(*at)->outer;
  if (*at == NULL) return;
  *at = j->outer;
  j->outer = NULL;
  __atomic_sub_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
}

int amp_journal_count(const amp_journal *j) { return j->n; }

static amp_tensor *bytes_of(amp_storage *s)
{
  int64_t n = (int64_t)s->bytes;
  return amp__tensor_of(s, AMP_UINT8, 1, &n, NULL, 0);
}

static amp_tensor *copy_of(amp_storage *s)
{
  amp_tensor *view = bytes_of(s), *copy = view ? amp__raw_clone(view) : NULL;
  amp__free(view);
  return copy;
}

static int note_in(amp_journal *j, amp_storage *s)
{
  if ((int32_t)(s->born - j->epoch) >= 0) return 0;
  for (int i = 0; i < j->n; i++) if (j->list[i].s == s) return 0;
  if (j->n == j->cap) {
    int cap = j->cap ? 2 * j->cap : 16;
    entry *more = realloc(j->list, sizeof *more * (size_t)cap);
    if (more == NULL) return amp__nomem(sizeof *more * (size_t)cap);
    j->list = more;
    j->cap = cap;
  }
  amp_tensor *was = copy_of(s);
  if (was == NULL) return amp__S->err.code;
  amp__storage_retain(s);
  j->list[j->n++] = (entry){ s, was, NULL, s->version, 0 };
  return 0;
}

static int note(amp_state *S, const amp_tensor *t)
{
  int rc = 0;
  for (amp_journal *j = S->priv->journal; t && j && rc == 0; j = j->outer) rc = note_in(j, t->storage);
  return rc;
}

/* Beside its receiver an op writes the statistics of a batch norm. */
int amp__journal_call(const amp_call *c, const amp_tensor *given)
{
  amp_state *S = amp__S;
  int rc = note(S, given), first = 0, last = 0;
  if (c->id == AMP_OP_batch_norm && c->a[0].i) { first = 1; last = 3; }
  if (c->id == AMP_OP_batch_norm_act && c->a[1].i) { first = 2; last = 4; }
  for (int i = first; i < last && i < c->nin && rc == 0; i++) rc = note(S, c->in[i]);
  if (rc == 0 && last == 4 && c->nin > 6) rc = note(S, c->in[6]);
  return rc;
}

static int write_back(amp_storage *s, amp_tensor *from)
{
  amp_tensor *in[2] = { bytes_of(s), from };
  if (in[0] == NULL) return amp__S->err.code;
  int rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
  amp__free(in[0]);
  return rc;
}

/* Versions are set by hand, so that what the function saves in its second run fits; a captured step counts bumps and keeps its own. */
static void set_version(amp_state *S, amp_storage *s, uint32_t version)
{
  if (S->priv->capture == NULL) s->version = version;
}

int amp_journal_forth(amp_state *S, amp_journal *j)
{
  AMP_ENTER(S);
  int rc = 0, last = 0;
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  S->grad_mode = S->autocast_on = 0;
  for (int i = 0; i < j->n; i++) {
    entry *e = &j->list[i];
    if (e->now == NULL) continue;
    if ((rc = write_back(e->s, e->now)) < 0) last = rc;
    set_version(S, e->s, e->version_now);
    amp__free(e->now);
    e->now = NULL;
  }
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  return last;
}

int amp_journal_back(amp_state *S, amp_journal *j)
{
  AMP_ENTER(S);
  int rc = 0;
  for (int i = 0; i < j->n && rc == 0; i++) { /* what can lack memory comes first */
    entry *e = &j->list[i];
    if (e->now == NULL && (e->now = copy_of(e->s)) == NULL) rc = S->err.code;
    e->version_now = e->s->version;
  }
  if (rc < 0) {
    for (int i = 0; i < j->n; i++) { amp__free(j->list[i].now); j->list[i].now = NULL; }
    return rc;
  }
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  S->grad_mode = S->autocast_on = 0;
  for (int i = 0; i < j->n && rc == 0; i++) {
    rc = write_back(j->list[i].s, j->list[i].was);
    set_version(S, j->list[i].s, j->list[i].version);
  }
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  if (rc < 0) {
    amp_error err = S->err;
    (void)amp_journal_forth(S, j);
    S->err = err;
  }
  return rc;
}
