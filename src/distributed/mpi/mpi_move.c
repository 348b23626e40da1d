/*
** distributed/mpi/mpi_move.c: data of agreed calls. Reductions: each rank combines one part of the elements, of all
** ranks in rank order, so that the result is the same bits everywhere and in every run; then it sends its part to all.
** Long ones go in segments, whose shares stay in the caches.
*/
#include <stdio.h>
#include <stdlib.h>
#include "distributed/mpi/mpi_engine.h"

enum { SEGMENT = 8 << 20, LINE = 64 }; /* bytes; elements that are not parted */

static char *at(void *p, int64_t element, const amp_job *job)
{
  return (char *)p + (size_t)element * amp__mpi.core->dtype_size[job->dtype];
}

static int64_t bytes(const amp_job *job, int64_t count) { return count * amp__mpi.core->dtype_size[job->dtype]; }

/* Where member i's part of n elements begins */
static int64_t part(int64_t n, int members, int i)
{
  int64_t lines = (n + LINE - 1) / LINE, from = lines * i / members * LINE;
  return from < n ? from : n;
}

static int send_to(run *r, const group *g, const amp_job *job, void *p, int64_t count, int member)
{
  return amp__mpi_isend(r, p, bytes(job, count), g->rank[member], amp__mpi_tag(job->group, TAG_DATA));
}

static int receive(run *r, const group *g, const amp_job *job, void *p, int64_t count, int member)
{
  return amp__mpi_irecv(r, p, bytes(job, count), g->rank[member], amp__mpi_tag(job->group, TAG_DATA));
}

static int room(run *r, const group *g, const amp_job *job, int64_t count)
{
  if (r->temp) return 0;
  r->temp = malloc((size_t)bytes(job, count) * (size_t)g->n + 64);
  r->parts = malloc(sizeof *r->parts * (size_t)g->n);
  return r->temp && r->parts ? 0 : -1;
}

/* -- all_reduce --------------------------------------------------------------------- */

static int64_t segment(const amp_job *job, const run *r)
{
  int64_t most = SEGMENT / amp__mpi.core->dtype_size[job->dtype], rest = job->count - r->at;
  return rest < most ? rest : most;
}

/* phase 3: shares are sent; 4: combined, results are sent; 5: they are here */
static int all_reduce(amp_job *job, run *r, group *g)
{
  while (r->at < job->count) {
    int64_t n = segment(job, r), from = part(n, g->n, g->me), mine = part(n, g->n, g->me + 1) - from;
    int status = 0, done;
    char *data = at(job->out[0], r->at, job);
    if (r->phase == 3) {
      if (room(r, g, job, part(n, g->n, 1) + LINE + (n / g->n)) < 0) return -1;
      for (int i = 0; i < g->n && !status; i++) {
        int64_t theirs = part(n, g->n, i), count = part(n, g->n, i + 1) - theirs;
        r->parts[i] = i == g->me ? at(data, from, job) : at(r->temp, mine * i, job);
        if (i == g->me) continue;
        if (mine) status = receive(r, g, job, r->parts[i], mine, i);
        if (count && !status) status = send_to(r, g, job, at(data, theirs, job), count, i);
      }
      if (status < 0) return -1;
      r->phase = 4;
    }
    if ((done = amp__mpi_done(r)) <= 0) return done;
    if (r->phase == 4) {
      if (mine) amp__mpi.core->combine(job->dtype, job->op, at(data, from, job), r->parts, g->n, mine);
      for (int i = 0; i < g->n && !status; i++) {
        int64_t theirs = part(n, g->n, i), count = part(n, g->n, i + 1) - theirs;
        if (i == g->me) continue;
        if (count) status = receive(r, g, job, at(data, theirs, job), count, i);
        if (mine && !status) status = send_to(r, g, job, at(data, from, job), mine, i);
      }
      if (status < 0) return -1;
      r->phase = 5;
      if ((done = amp__mpi_done(r)) <= 0) return done;
    }
    r->at += n;
    r->phase = 3;
  }
  return 1;
}

/* -- The others: everything is begun at once, then combined where that is asked --------- */

static int begin_reduce(amp_job *job, run *r, const group *g)
{
  bool scatter = job->kind == AMP_DIST_REDUCE_SCATTER;
  int status = 0;
  if ((scatter || g->me == job->root) && room(r, g, job, job->count) < 0) return -1;
  for (int i = 0; i < g->n && !status; i++) {
    if (scatter || g->me == job->root) {
      r->parts[i] = i == g->me ? at(job->in[0], scatter ? job->count * i : 0, job) : at(r->temp, job->count * i, job);
      if (i != g->me) status = receive(r, g, job, r->parts[i], job->count, i);
    }
    if (i != g->me && !status && (scatter || i == job->root))
      status = send_to(r, g, job, at(job->in[0], scatter ? job->count * i : 0, job), job->count, i);
  }
  return status;
}

static void own(const amp_job *job, void *to, const void *from)
{
  if (to != from && job->count) memcpy(to, from, (size_t)bytes(job, job->count));
}

/* Everybody's piece to everybody */
static int begin_each(amp_job *job, run *r, const group *g)
{
  int status = 0;
  bool lists = job->kind == AMP_DIST_ALL_TO_ALL;
  for (int i = 0; i < g->n && !status; i++) {
    void *in = lists ? job->in[i] : job->in[0];
    void *out = lists ? job->out[i] : at(job->out[0], job->count * i, job);
    if (i == g->me) {
      own(job, out, in);
      continue;
    }
    status = receive(r, g, job, out, job->count, i);
    if (!status) status = send_to(r, g, job, in, job->count, i);
  }
  return status;
}

/* From the root, or to it */
static int begin_rooted(amp_job *job, run *r, const group *g)
{
  bool from = job->kind != AMP_DIST_GATHER, root = g->me == job->root;
  int status = 0;
  if (!root)
    return from ? receive(r, g, job, job->out[0], job->count, job->root)
                : send_to(r, g, job, job->in[0], job->count, job->root);
  for (int i = 0; i < g->n && !status; i++) {
    if (i == g->me) {
      if (job->kind == AMP_DIST_GATHER) own(job, job->out[i], job->in[0]);
      else if (job->kind == AMP_DIST_SCATTER) own(job, job->out[0], job->in[i]);
    } else if (from)
      status = send_to(r, g, job, job->kind == AMP_DIST_SCATTER ? job->in[i] : job->out[0], job->count, i);
    else status = receive(r, g, job, job->out[i], job->count, i);
  }
  return status;
}

static int begin(amp_job *job, run *r, const group *g)
{
  switch (job->kind) {
  case AMP_DIST_REDUCE:
  case AMP_DIST_REDUCE_SCATTER: return begin_reduce(job, r, g);
  case AMP_DIST_ALL_GATHER:
  case AMP_DIST_ALL_TO_ALL: return begin_each(job, r, g);
  case AMP_DIST_BROADCAST:
  case AMP_DIST_GATHER:
  case AMP_DIST_SCATTER: return begin_rooted(job, r, g);
  default: return 0;
  }
}

int amp__mpi_move(amp_job *job, run *r)
{
  group *g = amp__mpi.groups[job->group];
  int status = 1;
  if (job->count == 0 || job->kind >= AMP_DIST_BARRIER) return 1;
  if (job->kind == AMP_DIST_ALL_REDUCE) status = all_reduce(job, r, g);
  else {
    if (r->phase == 3) {
      if (begin(job, r, g) < 0) status = -1;
      r->phase = 4;
    }
    if (status >= 0) status = amp__mpi_done(r);
    if (status == 1 && r->parts) amp__mpi.core->combine(job->dtype, job->op, job->out[0], r->parts, g->n, job->count);
  }
  if (status < 0) return amp__mpi_broken(job);
  if (status == 0 && amp__mpi.core->clock() > r->until) {
    char call[192];
    job->stuck = true;
    return amp__mpi_fail(job, "rank %d fell silent in the middle of %s", amp__mpi_silent(r) + 1,
                         amp__mpi.core->describe(job, call, sizeof call));
  }
  return status;
}

/* -- send and recv ----------------------------------------------------------------------- */

static bool fits(const call_header *a, const call_header *b)
{
  return a->dtype == b->dtype && a->ndim == b->ndim && memcmp(a->size, b->size, sizeof a->size) == 0;
}

static int pair_late(amp_job *job, const run *r)
{
  int gone = amp__mpi.gone[job->root];
  char call[192];
  if (!gone && amp__mpi.core->clock() < r->until) return 0;
  amp__mpi.core->describe(job, call, sizeof call);
  if (r->phase == 1 && job->kind == AMP_DIST_RECV) amp__mpi_withdraw(job);
  else job->stuck = true;
  const char *other = job->kind == AMP_DIST_SEND ? "recv" : "send";
  if (gone > 1)
    return amp__mpi_fail(job, "rank %d ended with status %d; rank %d calls %s", job->root + 1, gone - 1,
                         amp__mpi.rank + 1, call);
  if (gone)
    return amp__mpi_fail(job, "rank %d has ended (finalize); rank %d calls %s", job->root + 1, amp__mpi.rank + 1, call);
  return amp__mpi_fail(job, "rank %d did not come to %s within %g seconds; rank %d calls %s", job->root + 1, other,
                       job->timeout, amp__mpi.rank + 1, call);
}

/* What came: do both name the same? The receiver says so to the sender. */
static void judge(const amp_job *job, run *r)
{
  char a[192], b[192];
  amp_job theirs = *job;
  r->said = (verdict){ .seq = r->theirs.seq, .ok = fits(&r->mine, &r->theirs) };
  if (r->said.ok) return;
  theirs.kind = AMP_DIST_SEND;
  theirs.dtype = r->theirs.dtype;
  theirs.ndim = r->theirs.ndim;
  memcpy(theirs.size, r->theirs.size, sizeof theirs.size);
  snprintf(r->said.text, sizeof r->said.text, "the calls of the ranks differ: rank %d: %s; rank %d: %s", job->root + 1,
           amp__mpi.core->describe(&theirs, a, sizeof a), amp__mpi.rank + 1, amp__mpi.core->describe(job, b, sizeof b));
}

static int pair_begin(amp_job *job, run *r)
{
  int status;
  r->mine = (call_header){ .kind = job->kind, .dtype = job->dtype, .ndim = job->ndim };
  memcpy(r->mine.size, job->size, sizeof(int64_t) * (size_t)job->ndim);
  r->phase = 1;
  if (job->kind == AMP_DIST_RECV) return amp__mpi_irecv(r, &r->theirs, sizeof r->theirs, job->root, TAG_SEND);
  r->mine.seq = ++amp__mpi.pairs[job->root].sent;
  status = amp__mpi_isend(r, &r->mine, sizeof r->mine, job->root, TAG_SEND);
  return status ? status : amp__mpi_irecv(r, &r->said, sizeof r->said, job->root, TAG_ANSWER);
}

/* phase 1: the header is under way; 2: so is the answer; 3: the data */
int amp__mpi_pair(amp_job *job, run *r)
{
  int done;
  if (r->phase == 0 && pair_begin(job, r) < 0) return amp__mpi_broken(job);
  for (;;) {
    if ((done = amp__mpi_done(r)) < 0) return amp__mpi_broken(job);
    if (done == 0) return pair_late(job, r);
    if (r->phase == 3) return 1;
    if (r->phase == 1 && job->kind == AMP_DIST_RECV) {
      if (r->theirs.seq <= amp__mpi.pairs[job->root].dead) { /* of a call that was given up */
        if (amp__mpi_irecv(r, &r->theirs, sizeof r->theirs, job->root, TAG_SEND) < 0) return amp__mpi_broken(job);
        continue;
      }
      judge(job, r);
      if (amp__mpi_isend(r, &r->said, sizeof r->said, job->root, TAG_ANSWER) < 0) return amp__mpi_broken(job);
      r->phase = 2;
      continue;
    }
    if (!r->said.ok) return amp__mpi_fail(job, "%s", r->said.text);
    r->phase = 3;
    done = job->kind == AMP_DIST_SEND ? amp__mpi_isend(r, job->in[0], bytes(job, job->count), job->root, TAG_PAIR)
                                      : amp__mpi_irecv(r, job->out[0], bytes(job, job->count), job->root, TAG_PAIR);
    if (done < 0) return amp__mpi_broken(job);
  }
}
