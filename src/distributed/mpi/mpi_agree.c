/*
** distributed/mpi/mpi_agree.c: all ranks of a call say to the group's first rank what they call; it answers all of them
** the same: go on, or what differs, or who did not come in time. Calls of a group are numbered, so that an answer or a
** rank that comes too late is known as such.
*/
#include <stdio.h>
#include <stdlib.h>
#include "distributed/mpi/mpi_engine.h"

enum { GRACE = 2 }; /* seconds that the others wait longer than the first, which knows more */

static const char *call_text(const call_header *h, char *text, size_t size)
{
  amp_job job = { .kind = h->kind, .op = h->op, .dtype = h->dtype, .root = h->root, .ndim = h->ndim };
  memcpy(job.size, h->size, sizeof job.size);
  return amp__mpi.core->describe(&job, text, size);
}

static bool same_call(const call_header *a, const call_header *b)
{
  return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->root == b->root && a->ndim == b->ndim
         && memcmp(a->size, b->size, sizeof a->size) == 0;
}

/* "rank 2", "ranks 1, 3 and 4" of those whose mark is `which` */
static int list_ranks(char *text, size_t size, const group *g, const int *mark, int which)
{
  int total = 0, seen = 0, at = 0;
  for (int i = 0; i < g->n; i++) total += mark[i] == which;
  at += snprintf(text, size, total > 1 ? "ranks " : "rank ");
  for (int i = 0; i < g->n && at < (int)size - 40; i++) {
    if (mark[i] != which) continue;
    const char *before = seen == 0 ? "" : seen == total - 1 ? " and " : ", ";
    if (++seen > 16) {
      at += snprintf(text + at, size - (size_t)at, ", ...");
      break;
    }
    at += snprintf(text + at, size - (size_t)at, "%s%d", before, g->rank[i] + 1);
  }
  return at;
}

/* Which ranks call what, where they differ; false: they don't. */
static bool differ(const group *g, const call_header *mine, char *text, size_t size)
{
  int *class = calloc((size_t)g->n, sizeof *class), classes = 1, at;
  if (class == NULL) return false;
  for (int i = 1; i < g->n; i++) {
    int c = -1;
    for (int k = 0; k < i && c < 0; k++)
      if (same_call(k ? &g->heard[k] : mine, &g->heard[i])) c = class[k];
    class[i] = c < 0 ? classes++ : c;
  }
  at = snprintf(text, size, "the calls of the ranks differ: ");
  for (int c = 0; c < classes && at < (int)size - 200; c++) {
    char call[192];
    int first = 0;
    while (class[first] != c) first++;
    at += list_ranks(text + at, 120, g, class, c);
    at += snprintf(text + at, size - (size_t)at, ": %s%s",
                   call_text(first ? &g->heard[first] : mine, call, sizeof call), c + 1 < classes ? "; " : "");
  }
  free(class);
  return classes > 1;
}

/* Who has not come, as a list of marks: 0; why: NULL, it is late */
static void missing(const group *g, const call_header *mine, int left, double seconds, verdict *v)
{
  int *mark = calloc((size_t)g->n, sizeof *mark), at;
  char call[192];
  if (mark == NULL) return;
  for (int i = 0; i < g->n; i++) mark[i] = left >= 0 ? i != left : i == 0 || g->came[i];
  call_text(mine, call, sizeof call);
  at = list_ranks(v->text, sizeof v->text - 256, g, mark, 0);
  if (left >= 0) {
    int status = amp__mpi.gone[g->rank[left]] - 1;
    if (status)
      snprintf(v->text + at, sizeof v->text - (size_t)at, " ended with status %d and does not come to %s", status,
               call);
    else snprintf(v->text + at, sizeof v->text - (size_t)at, " has ended (finalize) and does not come to %s", call);
  } else snprintf(v->text + at, sizeof v->text - (size_t)at, " did not come to %s within %g seconds", call, seconds);
  free(mark);
}

/* Member i comes to a call that the others have given up: it is told, in a message short enough to go at once. */
static int too_late(const group *g, int group_id, int i)
{
  char call[192];
  verdict v = { .seq = g->heard[i].seq };
  snprintf(v.text, sizeof v.text, "rank %d came too late to %s: the others have given it up", g->rank[i] + 1,
           call_text(&g->heard[i], call, sizeof call));
  return MPI_Send(&v, sizeof v, MPI_BYTE, g->rank[i], amp__mpi_tag(group_id, TAG_VERDICT), MPI_COMM_WORLD) ? -1 : 0;
}

/* A header of member i has come, if one has. */
static int hear(group *g, int group_id, int i, int64_t seq)
{
  for (;;) {
    int flag = 0;
    if (g->came[i]) return 0;
    if (!g->posted[i]) {
      if (MPI_Irecv(&g->heard[i], sizeof *g->heard, MPI_BYTE, g->rank[i], amp__mpi_tag(group_id, TAG_CALL),
                    MPI_COMM_WORLD, &g->hearing[i]))
        return -1;
      g->posted[i] = true;
    }
    if (MPI_Test(&g->hearing[i], &flag, MPI_STATUS_IGNORE)) return -1;
    if (!flag) return 0;
    g->posted[i] = false;
    if (g->heard[i].seq >= seq) g->came[i] = true;
    else if (g->heard[i].seq > g->dead && too_late(g, group_id, i) < 0) return -1;
  }
}

static int conclude(amp_job *job, run *r, group *g)
{
  int status = 0;
  for (int i = 1; i < g->n && status == 0; i++)
    if (g->came[i])
      status = amp__mpi_isend(r, &r->said, sizeof r->said, g->rank[i], amp__mpi_tag(job->group, TAG_VERDICT));
  r->failed = !r->said.ok;
  r->phase = 2;
  return status < 0 ? amp__mpi_broken(job) : 0;
}

static int as_first(amp_job *job, run *r, group *g)
{
  int left = -1, waiting = 0;
  for (int i = 1; i < g->n; i++) {
    bool gone = amp__mpi.gone[g->rank[i]] != 0; /* before its calls are heard, which it made before */
    if (hear(g, job->group, i, r->mine.seq) < 0) return amp__mpi_broken(job);
    if (g->came[i]) continue;
    waiting++;
    if (gone && left < 0) left = i;
  }
  r->said.seq = r->mine.seq;
  r->said.ok = 1;
  r->said.text[0] = 0;
  if (waiting == 0) r->said.ok = !differ(g, &r->mine, r->said.text, sizeof r->said.text);
  else if (left < 0 && amp__mpi.core->clock() < r->until) return 0;
  else {
    r->said.ok = 0;
    missing(g, &r->mine, left, job->timeout, &r->said);
  }
  return conclude(job, r, g);
}

static int as_other(amp_job *job, run *r, group *g)
{
  int first = g->rank[0], flag = 0;
  bool gone = amp__mpi.gone[first] != 0;
  if (!g->waits) {
    if (MPI_Irecv(&g->answer, sizeof g->answer, MPI_BYTE, first, amp__mpi_tag(job->group, TAG_VERDICT), MPI_COMM_WORLD,
                  &g->answering))
      return amp__mpi_broken(job);
    g->waits = true;
  }
  if (MPI_Test(&g->answering, &flag, MPI_STATUS_IGNORE)) return amp__mpi_broken(job);
  if (flag) {
    g->waits = false;
    if (g->answer.seq != r->mine.seq) return 0; /* of a call that has failed here before */
    r->said = g->answer;
    r->failed = !r->said.ok;
    r->phase = 2;
    return 0;
  }
  if (!gone && amp__mpi.core->clock() < r->until + GRACE) return 0;
  char call[192];
  call_text(&r->mine, call, sizeof call);
  job->stuck = true;
  int status = amp__mpi.gone[first] - 1;
  if (gone && status)
    return amp__mpi_fail(job, "rank %d ended with status %d and does not come to %s", first + 1, status, call);
  if (gone) return amp__mpi_fail(job, "rank %d has ended (finalize) and does not come to %s", first + 1, call);
  return amp__mpi_fail(job, "rank %d did not come to %s within %g seconds", first + 1, call, job->timeout);
}

int amp__mpi_agree(amp_job *job, run *r)
{
  group *g = amp__mpi.groups[job->group];
  if (r->phase == 0) {
    r->mine = (call_header){
      .seq = ++g->seq, .kind = job->kind, .op = job->op, .dtype = job->dtype, .root = job->root, .ndim = job->ndim
    };
    memcpy(r->mine.size, job->size, sizeof(int64_t) * (size_t)job->ndim);
    if (g->me == 0) memset(g->came, 0, sizeof *g->came * (size_t)g->n);
    else if (amp__mpi_isend(r, &r->mine, sizeof r->mine, g->rank[0], amp__mpi_tag(job->group, TAG_CALL)) < 0)
      return amp__mpi_broken(job);
    r->phase = 1;
  }
  if (r->phase == 1) {
    int status = g->me == 0 ? as_first(job, r, g) : as_other(job, r, g);
    if (status < 0 || r->phase == 1) return status;
  }
  int done = amp__mpi_done(r);
  if (done < 0) return amp__mpi_broken(job);
  if (done == 0 && amp__mpi.core->clock() > r->until + 2 * GRACE) {
    job->stuck = true;
    done = r->failed = 1;
    if (r->said.ok)
      snprintf(r->said.text, sizeof r->said.text, "rank %d did not take its answer", amp__mpi_silent(r) + 1);
  }
  if (done == 0) return 0;
  if (r->failed) return amp__mpi_fail(job, "%s", r->said.text);
  r->phase = 3;
  return 1;
}
