/*
** distributed/nccl/nccl_board.c: what the ranks of one machine call, in memory that they share, for NCCL compares
** nothing and knows no names. A rank writes each call there before it launches it. While calls wait, their records say
** who has not come, who calls something else, and who has ended: each rank holds a lock that the kernel lets go when
** its process ends, however it does. Ranks of other machines are not seen: of them only the timeout tells.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "distributed/nccl/nccl_engine.h"

enum { KEPT = 16 }; /* records of a group */
enum { NOT_HERE, HERE, LEFT };
typedef struct record {
  _Atomic int64_t seq; /* 0: it is being written */
  char text[CALL_TEXT];
} record;
typedef struct slot {
  pthread_mutex_t alive;
  _Atomic int state;
  _Atomic int64_t last[MOST_GROUPS + 1];
  record call[MOST_GROUPS + 1][KEPT];
} slot;

static slot *board;
static char name[96];

static size_t bytes(void) { return sizeof(slot) * (size_t)amp__nccl.size; }

static int hold(slot *mine)
{
  pthread_mutexattr_t how;
  memset(mine, 0, sizeof *mine);
  int status = pthread_mutexattr_init(&how);
  if (status == 0) status = pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
  if (status == 0) status = pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
  if (status == 0) status = pthread_mutex_init(&mine->alive, &how);
  if (status == 0) status = pthread_mutex_lock(&mine->alive);
  return status;
}

void amp__board_open(const char *world)
{
  snprintf(name, sizeof name, "/%s-%d", world, (int)getuid());
  int fd = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  void *p = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, (off_t)bytes()) == 0) p = mmap(NULL, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (p == MAP_FAILED) return; /* nothing is known of others, then */
  board = p;
  if (hold(&board[amp__nccl.rank]) == 0) board[amp__nccl.rank].state = HERE;
}

void amp__board_joined(void)
{
  if (board) shm_unlink(name);
}

void amp__board_close(void)
{
  if (board == NULL) return;
  slot *mine = &board[amp__nccl.rank];
  mine->state = LEFT;
  pthread_mutex_unlock(&mine->alive);
  shm_unlink(name);
  munmap(board, bytes());
  board = NULL;
}

void amp__board_call(int group, int64_t seq, const char *text)
{
  if (board == NULL) return;
  slot *mine = &board[amp__nccl.rank];
  record *r = &mine->call[group][seq % KEPT];
  atomic_store(&r->seq, 0);
  snprintf(r->text, sizeof r->text, "%s", text);
  atomic_store(&r->seq, seq);
  atomic_store(&mine->last[group], seq);
}

static bool ended(slot *s)
{
  int status = pthread_mutex_trylock(&s->alive);
  if (status == 0 || status == EOWNERDEAD) pthread_mutex_unlock(&s->alive); /* not made right: nobody gets it again */
  return status != EBUSY;
}

/* What member i of the group does about call seq: NULL, nothing is wrong with it yet */
static const char *wrong(slot *s, int group, int64_t seq, const char *text, bool late, char *theirs)
{
  int state = s->state;
  record *r = &s->call[group][seq % KEPT];
  if (state == NOT_HERE) return late && seq == 0 ? "did not come to" : NULL;
  if (seq == 0) return NULL;
  if (atomic_load(&r->seq) == seq) {
    snprintf(theirs, CALL_TEXT, "%s", r->text);
    if (atomic_load(&r->seq) == seq && strcmp(theirs, text) != 0) return theirs;
  }
  if (s->last[group] >= seq) return NULL;
  if (state == LEFT) return "has ended (finalize) and does not come to";
  if (ended(s)) return s->last[group] >= seq ? NULL : "has ended and does not come to";
  return late ? "did not come to" : NULL;
}

bool amp__board_tells(int group, int64_t seq, const char *text, bool late, double seconds, char *why, size_t room)
{
  const struct group *g = &amp__nccl.groups[group < MOST_GROUPS ? group : 0];
  int n = group == 0 || group == MOST_GROUPS ? amp__nccl.size : g->n, at = 0;
  for (int i = 0; i < n && board && at < (int)room - 2 * CALL_TEXT; i++) {
    char theirs[CALL_TEXT], limit[64] = "";
    int rank = g->rank && group != MOST_GROUPS ? g->rank[i] : i;
    const char *what = rank == amp__nccl.rank ? NULL : wrong(&board[rank], group, seq, text, late, theirs);
    if (what == NULL) continue;
    if (late) snprintf(limit, sizeof limit, " within %g seconds", seconds);
    if (what == theirs)
      at += snprintf(why + at, room - (size_t)at, "%srank %d: %s",
                     at ? "; " : "the calls of the ranks differ: ", rank + 1, theirs);
    else if (at == 0) at += snprintf(why, room, "rank %d %s %s%s", rank + 1, what, text, limit);
  }
  if (at && strncmp(why, "the calls", 9) == 0)
    snprintf(why + at, room - (size_t)at, "; rank %d: %s", amp__nccl.rank + 1, text);
  return at > 0;
}
