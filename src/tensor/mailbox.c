/*
** tensor/mailbox.c: tensors from one state to another, in whichever thread that is.
**
** A mailbox has a name that is the same in the whole process, and room for so many letters; the oldest one goes
** where another comes. A letter counts tensors of its own on the storages it was given, and has each storage's
** version: one that was written to since is refused when the letter is opened. Tensors are freed outside of the
** mutex, as that takes others.
**
** Who waits for a letter sleeps at a condition variable, which each put signals. A signal handler can signal none, so
** the wait is over each LOOK_MS for a look whether it was interrupted.
*/
#include <stdlib.h>
#include <time.h>
#include "base/locks.h"
#include "tensor/tensor.h"

enum { NAME_BYTES = 64, MOST_LETTERS = 65536, LOOK_MS = 50 };

typedef struct letter {
  amp_letter seen; /* what the caller reads */
  struct letter *next;
  amp_tensor **tensor;
  uint32_t *version; /* of each tensor's storage, as it was put */
} letter;

struct amp_mailbox {
  amp_mailbox *next;
  int users, keep; /* keep 0: nobody has said */
  int held;        /* letters that lie in it */
  int64_t puts, dropped;
  letter *first, *last;
  pthread_cond_t came; /* a letter came */
  char name[NAME_BYTES];
};

static amp_mailbox *mailboxes; /* guarded by AMP_LOCK_MAILBOXES, as their fields are */

void amp_letter_free(amp_letter *seen)
{
  letter *l = (letter *)seen;
  if (l == NULL) return;
  for (int i = 0; i < l->seen.n; i++) amp__free(l->tensor[i]);
  free(l);
}

static void free_all(letter *l)
{
  while (l) {
    letter *next = l->next;
    amp_letter_free(&l->seen);
    l = next;
  }
}

/* The oldest letter, no longer in the mailbox. */
static letter *take_first(amp_mailbox *box)
{
  amp__assert_locked(AMP_LOCK_MAILBOXES);
  letter *l = box->first;
  if (l == NULL) return NULL;
  if ((box->first = l->next) == NULL) box->last = NULL;
  l->next = NULL;
  box->held--;
  return l;
}

/* A condition variable whose waits end by the clock that nobody sets. */
static void make_condition(pthread_cond_t *made)
{
  pthread_condattr_t kind;
  pthread_condattr_init(&kind);
  pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
  pthread_cond_init(made, &kind);
  pthread_condattr_destroy(&kind);
}

amp_mailbox *amp_mailbox_open(amp_state *state, const char *name, int keep)
{
  AMP_ENTER(state);
  size_t length = strlen(name);
  if (length == 0 || length >= NAME_BYTES) {
    amp__fail(AMP_E_ARGUMENT, "a mailbox's name has 1 to %d bytes, got %zu", NAME_BYTES - 1, length);
    return NULL;
  }
  if (keep < 0 || keep > MOST_LETTERS) {
    amp__fail(AMP_E_ARGUMENT, "keep must be 1 to %d letters, got %d", MOST_LETTERS, keep);
    return NULL;
  }
  amp_mailbox *made = calloc(1, sizeof *made), *box;
  amp__lock(AMP_LOCK_MAILBOXES);
  for (box = mailboxes; box && strcmp(box->name, name) != 0; box = box->next) {}
  if (box == NULL && made) {
    memcpy(made->name, name, length + 1);
    make_condition(&made->came);
    made->next = mailboxes;
    mailboxes = box = made;
    made = NULL;
  }
  int kept = box ? box->keep : 0;
  if (box && !(keep && kept && keep != kept)) {
    box->users++;
    if (keep) box->keep = kept = keep;
  }
  amp__unlock(AMP_LOCK_MAILBOXES);
  free(made);
  if (box == NULL) amp__fail(AMP_E_MEMORY, "no memory for a mailbox");
  else if (keep && kept != keep) {
    amp__fail(AMP_E_STATE, "the mailbox '%s' keeps %d letter%s, as it was opened first; asked for %d", name, kept,
              kept == 1 ? "" : "s", keep);
    box = NULL;
  }
  return box;
}

void amp_mailbox_close(amp_mailbox *box)
{
  if (box == NULL) return;
  letter *left = NULL;
  amp__lock(AMP_LOCK_MAILBOXES);
  bool last = --box->users == 0;
  if (last) {
    amp_mailbox **at = &mailboxes;
    while (*at != box) at = &(*at)->next;
    *at = box->next;
    left = box->first;
  }
  amp__unlock(AMP_LOCK_MAILBOXES);
  if (!last) return;
  free_all(left);
  pthread_cond_destroy(&box->came);
  free(box);
}

/* Why a tensor can't be handed over as it is; 0: it can. */
static int refuse(const amp_tensor *tensor, int number)
{
  if (tensor == NULL) return amp__fail(AMP_E_ARGUMENT, "tensor %d was freed", number);
  if (amp__tracked(tensor))
    return amp__fail(
        AMP_E_AUTOGRAD,
        "tensor %d %s, which belongs to its own Lua state: hand over a copy (copy = true), or its detach()", number,
        tensor->flags & AMP_T_HISTORY ? "has a history" : "requires grad");
  if (tensor->storage->block && tensor->storage->block->foreign && tensor->storage->block->id)
    return amp__fail(AMP_E_STATE,
                     "tensor %d lies in memory that its own Lua state keeps (from_ptr, or a file in memory): "
                     "hand over a copy (copy = true)",
                     number);
  return 0;
}

static letter *write_letter(amp_tensor *const *tensor, int n, const void *note, int64_t size)
{
  size_t tensors = sizeof(amp_tensor *) * (size_t)n, versions = (sizeof(uint32_t) * (size_t)n + 7) / 8 * 8;
  letter *l = calloc(1, sizeof *l + tensors + versions + (size_t)size);
  if (l == NULL) return NULL;
  char *rest = (char *)(l + 1);
  l->tensor = (amp_tensor **)rest;
  l->version = (uint32_t *)(rest + tensors);
  l->seen.note = rest + tensors + versions;
  l->seen.size = size;
  if (size) memcpy(rest + tensors + versions, note, (size_t)size);
  for (; l->seen.n < n; l->seen.n++) {
    amp_tensor *own = amp__tensor_alias(tensor[l->seen.n]);
    if (own == NULL) {
      amp_letter_free(&l->seen);
      return NULL;
    }
    own->flags = (own->flags & ~(uint32_t)AMP_T_UNRECORDED) | AMP_T_VIEW;
    l->tensor[l->seen.n] = own;
    l->version[l->seen.n] = amp__version(own);
  }
  return l;
}

int64_t amp_mailbox_put(amp_state *state, amp_mailbox *box, amp_tensor *const *tensor, int n, const void *note,
                        int64_t size)
{
  AMP_ENTER(state);
  for (int i = 0; i < n; i++) {
    int status = refuse(tensor[i], i + 1);
    if (status) return status;
  }
  letter *l = write_letter(tensor, n, note, size), *old = NULL;
  if (l == NULL) return amp__fail(AMP_E_MEMORY, "no memory for a letter");
  amp__lock(AMP_LOCK_MAILBOXES);
  if (box->held >= (box->keep ? box->keep : 1)) {
    old = take_first(box);
    box->dropped++;
  }
  if (box->last) box->last->next = l;
  else box->first = l;
  box->last = l;
  box->held++;
  int64_t version = l->seen.version = ++box->puts;
  pthread_cond_signal(&box->came);
  amp__unlock(AMP_LOCK_MAILBOXES);
  free_all(old);
  return version;
}

static bool interrupted(amp_state *state)
{
  return __atomic_fetch_and(&state->interrupt, (uint8_t)~AMP_I_INTERRUPT, __ATOMIC_RELAXED) & AMP_I_INTERRUPT;
}

/* Sleeps until a letter comes, `seconds` at most, and not beyond the next look. */
static void wait_for_letter(amp_mailbox *box, double seconds)
{
  struct timespec until;
  int64_t ns = seconds * 1e3 < LOOK_MS ? (int64_t)(seconds * 1e9) + 1 : (int64_t)LOOK_MS * 1000000;
  clock_gettime(CLOCK_MONOTONIC, &until);
  ns += until.tv_nsec;
  until.tv_sec += ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  amp__assert_locked(AMP_LOCK_MAILBOXES);
  pthread_cond_timedwait(&box->came, &amp__locks[AMP_LOCK_MAILBOXES].mutex, &until); /* the lock is free meanwhile */
}

amp_letter *amp_mailbox_take(amp_state *state, amp_mailbox *box, double seconds)
{
  AMP_ENTER(state);
  state->err.code = 0;
  double until = seconds > 0 ? amp_clock() + seconds : 0, left;
  letter *l;
  bool ended = false;
  amp__lock(AMP_LOCK_MAILBOXES);
  while ((l = take_first(box)) == NULL && seconds > 0 && (left = until - amp_clock()) > 0
         && !(ended = interrupted(state)))
    wait_for_letter(box, left);
  amp__unlock(AMP_LOCK_MAILBOXES);
  if (l) return &l->seen;
  if (ended) amp__fail(AMP_E_INTERRUPTED, "interrupted");
  return NULL;
}

int amp_letter_tensor(amp_state *state, amp_ref *out, const amp_letter *seen, int i)
{
  AMP_ENTER(state);
  const letter *l = (const letter *)seen;
  if (i < 0 || i >= seen->n) return amp__fail(AMP_E_INDEX, "tensor %d of a letter of %d", i + 1, seen->n);
  if (amp__version(l->tensor[i]) != l->version[i])
    return amp__fail(AMP_E_STATE,
                     "tensor %d was changed in place after it was put (version %u then, %u now): "
                     "who puts what is written to again hands over a copy (copy = true)",
                     i + 1, l->version[i], amp__version(l->tensor[i]));
  out->t = l->tensor[i];
  amp__retain(out->t);
  return 0;
}

void amp_mailbox_clear(amp_mailbox *box)
{
  amp__lock(AMP_LOCK_MAILBOXES);
  letter *all = box->first;
  box->first = box->last = NULL;
  box->dropped += box->held;
  box->held = 0;
  amp__unlock(AMP_LOCK_MAILBOXES);
  free_all(all);
}

int amp_mailbox_count(const amp_mailbox *box, int64_t *puts, int64_t *dropped)
{
  amp__lock(AMP_LOCK_MAILBOXES);
  int held = box->held;
  if (puts) *puts = box->puts;
  if (dropped) *dropped = box->dropped;
  amp__unlock(AMP_LOCK_MAILBOXES);
  return held;
}
