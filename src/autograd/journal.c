/*
** autograd/journal.c: what a function changed in tensors that were there before it.
**
** While a journal is open, dispatch notes each such storage before the first op
** that writes to it: its bytes and its version. Whoever runs the function once
** more (amp.checkpoint) goes back to that state first and forward again after:
**
**   amp_journal_back     bytes and versions as before the function
**   the function, again  makes the same changes, with the same versions
**   amp_journal_forth    bytes and versions as they were before amp_journal_back
**
** amp_journal_undo is amp_journal_back for good.
** A storage knows in which epoch it was made; each journal begins an epoch, so
** what the function makes itself is not noted. Journals nest. Owns its copies
** and a count of each storage. It sees what ops write, not what is written
** through a pointer.
*/
#include <stdlib.h>
#include "core.h"

typedef struct entry {
  amp_storage *storage;  /* counted */
  amp_tensor *bytes;     /* all of them: to write them back takes no memory */
  amp_tensor *was, *now; /* its bytes before the function; before amp_journal_back, NULL: it is not back */
  uint32_t version, version_now;
} entry;

struct amp_journal {
  amp_journal *outer;
  entry *list;
  int nentry, cap;
  uint32_t epoch;
};

amp_journal *amp_journal_new(amp_state *state)
{
  AMP_ENTER(state);
  amp_journal *journal = calloc(1, sizeof *journal);
  if (journal == NULL) {
    amp__nomem(sizeof *journal);
    return NULL;
  }
  journal->epoch = atomic_fetch_add_explicit(&amp__epoch, 1, memory_order_relaxed) + 1;
  return journal;
}

void amp_journal_free(amp_journal *journal)
{
  if (journal == NULL) return;
  for (int i = 0; i < journal->nentry; i++) {
    amp__free(journal->list[i].was);
    amp__free(journal->list[i].now);
    amp__free(journal->list[i].bytes);
    amp__storage_free(journal->list[i].storage);
  }
  free(journal->list);
  free(journal);
}

/* Opened twice, or shut twice, as after an interrupt in between, it is opened or shut once. */
void amp_journal_open(amp_state *state, amp_journal *journal)
{
  for (const amp_journal *k = state->priv->journal; k; k = k->outer)
    if (k == journal) return;
  journal->outer = state->priv->journal;
  state->priv->journal = journal;
  __atomic_add_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
}

void amp_journal_shut(amp_state *state, amp_journal *journal)
{
  amp_journal **at = &state->priv->journal;
  while (*at && *at != journal) at = &(*at)->outer;
  if (*at == NULL) return;
  *at = journal->outer;
  journal->outer = NULL;
  __atomic_sub_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
}

int amp_journal_count(const amp_journal *j) { return j->nentry; }

static amp_tensor *bytes_of(amp_storage *storage)
{
  int64_t n = (int64_t)storage->bytes;
  return amp__tensor_of(storage, AMP_UINT8, 1, &n, NULL, 0);
}

static int note_in(amp_journal *journal, amp_storage *storage)
{
  if ((int32_t)(storage->born - journal->epoch) >= 0) return 0;
  for (int i = 0; i < journal->nentry; i++)
    if (journal->list[i].storage == storage) return 0;
  if (journal->nentry == journal->cap) {
    int cap = journal->cap ? 2 * journal->cap : 16;
    entry *more = realloc(journal->list, sizeof *more * (size_t)cap);
    if (more == NULL) return amp__nomem(sizeof *more * (size_t)cap);
    journal->list = more;
    journal->cap = cap;
  }
  amp_tensor *bytes = bytes_of(storage), *was = bytes ? amp__raw_clone(bytes) : NULL;
  if (was == NULL) {
    amp__free(bytes);
    return amp__S->err.code;
  }
  amp__storage_retain(storage);
  journal->list[journal->nentry++] = (entry){ storage, bytes, was, NULL, storage->version, 0 };
  return 0;
}

static int note(amp_state *state, const amp_tensor *tensor)
{
  int status = 0;
  for (amp_journal *journal = state->priv->journal; tensor && journal && status == 0; journal = journal->outer)
    status = note_in(journal, tensor->storage);
  return status;
}

int amp__journal_note(const amp_tensor *tensor)
{
  return amp_unlikely(amp__S->priv->journal != NULL) ? note(amp__S, tensor) : 0;
}

int amp_journal_note(amp_state *state, const amp_ref *t)
{
  AMP_ENTER(state);
  return amp__journal_note(t->t);
}

/* Beside its receiver an op may write running statistics. */
static int journal_call(const amp_call *call, const amp_tensor *receiver)
{
  amp_state *state = amp__S;
  int status = note(state, receiver);
  if (!call->op->statistics || !call->attrs[call->op->training_slot].i) return status;
  for (int i = 0; i < call->nin && status == 0; i++)
    if (call->op->statistics >> i & 1) status = note(state, call->in[i]);
  return status;
}

static int write_back(const entry *e, amp_tensor *from)
{
  amp_tensor *inputs[2] = { e->bytes, from };
  return amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
}

/* Versions are set by hand, so that what the function saves in its second run fits; a captured step counts bumps
** and keeps its own. */
static void set_version(amp_state *state, amp_storage *storage, uint32_t version)
{
  if (state->priv->capture == NULL) storage->version = version;
}

int amp_journal_forth(amp_state *state, amp_journal *journal)
{
  AMP_ENTER(state);
  int status = 0, last = 0;
  amp__plain plain = amp__plain_begin();
  for (int i = 0; i < journal->nentry; i++) {
    entry *e = &journal->list[i];
    if (e->now == NULL) continue;
    if ((status = write_back(e, e->now)) < 0) {
      last = status;
      if (status == AMP_E_MEMORY) continue; /* it can be tried again */
    }
    set_version(state, e->storage, e->version_now);
    amp__free(e->now);
    e->now = NULL;
  }
  amp__plain_end(plain);
  return last;
}

static int all_back(amp_state *state, amp_journal *journal)
{
  int status = 0;
  amp__plain plain = amp__plain_begin();
  for (int i = 0; i < journal->nentry && status == 0; i++) {
    status = write_back(&journal->list[i], journal->list[i].was);
    set_version(state, journal->list[i].storage, journal->list[i].version);
  }
  amp__plain_end(plain);
  return status;
}

int amp_journal_undo(amp_state *state, amp_journal *journal)
{
  AMP_ENTER(state);
  return all_back(state, journal);
}

int amp_journal_back(amp_state *state, amp_journal *journal)
{
  AMP_ENTER(state);
  int status = 0;
  for (int i = 0; i < journal->nentry && status == 0; i++) { /* what can lack memory comes first */
    entry *e = &journal->list[i];
    if (e->now == NULL && (e->now = amp__raw_clone(e->bytes)) == NULL) status = state->err.code;
    e->version_now = e->storage->version;
  }
  if (status < 0) {
    for (int i = 0; i < journal->nentry; i++) {
      amp__free(journal->list[i].now);
      journal->list[i].now = NULL;
    }
    return status;
  }
  if ((status = all_back(state, journal)) < 0) {
    amp_error err = state->err;
    (void)amp_journal_forth(state, journal);
    state->err = err;
  }
  return status;
}

void amp__journal_install(void) { amp__hooks.journal_call = journal_call; }
