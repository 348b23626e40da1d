/*
** distributed/mpi/mpi_stuck.c: ranks whose calls can never meet: one that sends to another, which is in all_reduce and
** waits for the first; two that receive from each other.
**
**   rank  -- note: its program waits in this call, for others ------>  rank 1 of the world
**   rank  <- ask: still? ------------------ once all of them wait ---  rank 1
**   rank  -- note, the same ---------------------------------------->  rank 1
**   rank  <- end: the calls differ, and what they are ---------------  rank 1
**
** A rank writes a note after half a second in a call that nobody has answered, and another one when that is over. Notes
** are few and small, and nothing is written in calls that go on. A call that was ended leaves nothing behind: its
** number in the group is used up on all ranks, its send is not received any more.
*/
#include <stdio.h>
#include <stdlib.h>
#include "distributed/mpi/mpi_engine.h"

enum { WAITS_MS = 500, SLICE_MS = 400 };

typedef struct note {
  int64_t number, seq; /* seq: in its group, or among the sends to the peer */
  int32_t blocked, group, asked, rest;
  call_header call; /* root: the peer of send and recv */
} note;
typedef struct ending {
  char text[VERDICT_TEXT];
} ending; /* then the notes of all ranks */

static note mine, *notes; /* notes: at rank 1 */
static int asked, answers;
static bool asking;

static bool is_pair(int kind) { return kind == AMP_DIST_SEND || kind == AMP_DIST_RECV; }

/* Does the program wait for this job, and that for other ranks? */
static bool waits(const amp_job *job)
{
  const run *r = job ? job->own : NULL;
  double now = amp__mpi.core->clock();
  if (r == NULL || r->began == 0 || r->phase != 1 || atomic_load(&job->state) != 0) return false;
  return now - r->began > WAITS_MS * 1e-3 && now - amp__mpi.waited_at < SLICE_MS * 1e-3;
}

/* This rank's note as it is now; true: it has changed */
static bool take_note(const amp_job *job)
{
  note now = { .number = mine.number };
  if (waits(job)) {
    const run *r = job->own;
    now.blocked = 1;
    now.call = r->mine;
    now.seq = r->mine.seq;
    now.group = job->group;
    if (is_pair(job->kind)) now.call.root = job->root;
  }
  bool same = now.blocked == mine.blocked
              && (!now.blocked || (now.seq == mine.seq && memcmp(&now.call, &mine.call, sizeof now.call) == 0));
  if (same) return false;
  now.number++;
  mine = now;
  return true;
}

static void tell(int to, int tag, const void *p, size_t n) { MPI_Send(p, (int)n, MPI_BYTE, to, tag, MPI_COMM_WORLD); }

static bool next(int from, int tag, void *p, size_t n, int *source)
{
  int flag = 0;
  MPI_Status status;
  if (MPI_Iprobe(from, tag, MPI_COMM_WORLD, &flag, &status) || !flag) return false;
  *source = status.MPI_SOURCE;
  return MPI_Recv(p, (int)n, MPI_BYTE, status.MPI_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == 0;
}

/* -- The end of calls that differ ---------------------------------------------------------- */

static void drop_request(MPI_Request *q, bool *came)
{
  int cancelled = 1;
  MPI_Status status;
  if (*q == MPI_REQUEST_NULL) return;
  MPI_Cancel(q);
  MPI_Wait(q, &status);
  MPI_Test_cancelled(&status, &cancelled);
  *came = !cancelled;
}

void amp__mpi_withdraw(amp_job *job)
{
  run *r = job->own;
  bool came = false;
  int at = job->kind == AMP_DIST_SEND ? r->count - 1 : 0; /* what is received: the header, or its answer */
  if (!is_pair(job->kind) || r->phase != 1 || r->count == 0) return;
  drop_request(&r->request[at], &came);
  if (job->kind == AMP_DIST_RECV && came) { /* at the last moment: who sends is told */
    r->said = (verdict){ .seq = r->theirs.seq };
    snprintf(r->said.text, sizeof r->said.text, "rank %d had given up its recv", amp__mpi.rank + 1);
    tell(job->root, TAG_ANSWER, &r->said, sizeof r->said);
  }
}

/* What this rank has to know of the calls that were ended */
static void use_up(const note *all)
{
  for (int i = 0; i < amp__mpi.size; i++) {
    const note *n = &all[i];
    if (is_pair(n->call.kind)) {
      if (n->call.kind == AMP_DIST_SEND && n->call.root == amp__mpi.rank && amp__mpi.pairs[i].dead < n->seq)
        amp__mpi.pairs[i].dead = n->seq;
      continue;
    }
    group *g = n->group < amp__mpi.ngroup ? amp__mpi.groups[n->group] : NULL;
    if (g && g->dead < n->seq) g->dead = n->seq;
    if (g && g->seq < n->seq) g->seq = n->seq;
  }
}

static int give_up(amp_job *job, const ending *end, const note *all)
{
  use_up(all);
  if (job == NULL || all[amp__mpi.rank].number != mine.number || !mine.blocked) return 0;
  amp__mpi_withdraw(job);
  mine.blocked = 0;
  mine.number++;
  amp__mpi_fail(job, "%s", end->text);
  amp__mpi.ended = job;
  return 1;
}

/* -- Rank 1 ------------------------------------------------------------------------------------ */

static int call_of(const note *n, char *text, size_t size)
{
  amp_job job
      = { .kind = n->call.kind, .op = n->call.op, .dtype = n->call.dtype, .root = n->call.root, .ndim = n->call.ndim };
  memcpy(job.size, n->call.size, sizeof job.size);
  amp__mpi.core->describe(&job, text, size);
  size_t at = strlen(text);
  if (is_pair(n->call.kind))
    snprintf(text + at, size - at, " %s rank %d", n->call.kind == AMP_DIST_SEND ? "to" : "from", n->call.root + 1);
  return 0;
}

static void compose(char *text, size_t size)
{
  int at = snprintf(text, size, "the calls of the ranks differ: "), n = amp__mpi.size;
  for (int i = 0; i < n && at < (int)size - 300; i++) {
    char call[224], other[224];
    int more = 0;
    bool first = true;
    call_of(&notes[i], call, sizeof call);
    for (int k = 0; k < n; k++) {
      call_of(&notes[k], other, sizeof other);
      if (strcmp(call, other) != 0) continue;
      first = first && k >= i;
      more++;
    }
    if (!first) continue;
    at += snprintf(text + at, size - (size_t)at, "%s%s", i ? "; " : "", more > 1 ? "ranks " : "rank ");
    for (int k = i, said = 0; k < n && said < 8; k++) {
      call_of(&notes[k], other, sizeof other);
      if (strcmp(call, other) == 0)
        at += snprintf(text + at, size - (size_t)at, "%s%d", said++ == 0 ? "" : said == more ? " and " : ", ", k + 1);
    }
    at += snprintf(text + at, size - (size_t)at, ": %s", call);
  }
}

static bool all_blocked(void)
{
  for (int i = 0; i < amp__mpi.size; i++)
    if (!notes[i].blocked) return false;
  return true;
}

static int lead(amp_job *job)
{
  note n;
  int from;
  while (next(MPI_ANY_SOURCE, TAG_NOTE, &n, sizeof n, &from)) {
    bool same = n.number == notes[from].number && n.blocked;
    if (asking && !same) asking = false; /* somebody goes on */
    if (asking && n.asked == asked) answers++;
    notes[from] = n;
  }
  if (mine.number != notes[0].number || !mine.blocked) asking = false;
  notes[0] = mine;
  if (!all_blocked()) return 0;
  if (!asking) {
    asking = true;
    answers = 0;
    asked++;
    for (int i = 1; i < amp__mpi.size; i++) tell(i, TAG_ASK, &asked, sizeof asked);
    return 0;
  }
  if (answers < amp__mpi.size - 1) return 0;
  size_t bytes = sizeof(ending) + sizeof(note) * (size_t)amp__mpi.size;
  ending *end = calloc(1, bytes);
  if (end == NULL) return 0;
  compose(end->text, sizeof end->text);
  memcpy(end + 1, notes, sizeof(note) * (size_t)amp__mpi.size);
  for (int i = 1; i < amp__mpi.size; i++) tell(i, TAG_END, end, bytes);
  int status = give_up(job, end, (const note *)(end + 1));
  for (int i = 0; i < amp__mpi.size; i++) notes[i].blocked = 0;
  asking = false;
  free(end);
  return status;
}

int amp__mpi_stuck(amp_job *job)
{
  int from, question;
  bool changed = take_note(job);
  if (amp__mpi.size == 1) return 0;
  if (amp__mpi.rank == 0) {
    if (notes == NULL && (notes = calloc((size_t)amp__mpi.size, sizeof *notes)) == NULL) return 0;
    return lead(job);
  }
  mine.asked = 0;
  if (changed) tell(0, TAG_NOTE, &mine, sizeof mine);
  while (next(0, TAG_ASK, &question, sizeof question, &from)) {
    mine.asked = question;
    tell(0, TAG_NOTE, &mine, sizeof mine);
  }
  size_t bytes = sizeof(ending) + sizeof(note) * (size_t)amp__mpi.size;
  ending *end = malloc(bytes);
  int status = end && next(0, TAG_END, end, bytes, &from) ? give_up(job, end, (const note *)(end + 1)) : 0;
  free(end);
  return status;
}
