/*
** test_fork.c: fork while threads of other states work. They allocate, free, cast
** weights under autocast and make primitives; children run ops, allocate, take
** ids and end. A child that waits for a lock or a thread of its parent is ended by
** its alarm, and fails the test. At the end a team of threads has worked in the
** parent: children asked for several threads must not wait for them.
*/
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "autograd/tape.h"
#include "check.h"

enum { THREADS = 3, FORKS = 200, LIMIT = 20 /* seconds of a child */ };

static _Atomic int stop, wrong;
#define EXPECT(cond)                                                                                   \
  do {                                                                                                 \
    if (!(cond) && atomic_fetch_add(&wrong, 1) < 10) printf("%s:%d: %s\n", __FILE__, __LINE__, #cond); \
  } while (0)

static amp_ref matrix(amp_state *S, int64_t n, double v)
{
  int64_t size[2] = { n, n };
  double *list = malloc(sizeof *list * (size_t)(n * n));
  amp_ref r = { NULL };
  for (int64_t i = 0; i < n * n; i++) list[i] = v;
  EXPECT(amp_from_double(S, &r, list, 2, size, AMP_FLOAT32) == 0);
  free(list);
  return r;
}

static void cast_weight(amp_state *S, amp_ref *w)
{
  amp_ref x = { NULL };
  S->autocast_on = S->autocast[AMP_CPU].enabled = 1;
  EXPECT(amp_op2(S, AMP_OP_matmul, &x, w, w) == 0);
  S->autocast_on = S->autocast[AMP_CPU].enabled = 0;
  amp_autocast_leave(S);
  amp_release(&x);
}

/* An op, large and small blocks, a low copy that comes and goes, a hook's id */
static void work(amp_state *S, int64_t n, int round)
{
  amp_ref a = matrix(S, n, 1), b = { NULL }, s = { NULL };
  double v = 0;
  EXPECT(amp_requires_grad(S, &a, 1) == 0);
  EXPECT(amp_op2(S, AMP_OP_matmul, &b, &a, &a) == 0);
  EXPECT(amp_op1(S, AMP_OP_sum, &s, &b) == 0 && amp_item(S, &s, &v) == 0);
  EXPECT(v == (double)(n * n * n));
  cast_weight(S, &a);
  amp_release(&s);
  amp_release(&b);
  amp_release(&a);
  for (int i = 0; i < 40; i++) {
    amp_block *p = amp__block_new(AMP_CPU, 0, (size_t)(40 + (i + round) % 20) << 10);
    EXPECT(p != NULL);
    amp__block_free(p);
    amp__dead_push(amp__new_id());
    while (amp_dead_next(S)) {}
  }
  if (round % 8 == 0) amp_empty_cache(AMP_CPU);
}

static void *busy(void *arg)
{
  int me = (int)(intptr_t)arg;
  for (int i = 0; !atomic_load(&stop); i++) {
    amp_state *S = amp_state_new();
    for (int k = 0; k < 20 && !atomic_load(&stop); k++) work(S, 64 + 4 * ((i + k) % 64), me + k);
    amp_state_free(S);
  }
  return NULL;
}

/* What became of a child that runs f */
static int status_of(void (*f)(int), int round)
{
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(LIMIT);
    f(round);
    _exit(atomic_load(&wrong) != 0);
  }
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  return status;
}

static void child(int round)
{
  amp_state *S = amp_state_new();
  work(S, 64 + 4 * (round % 64), round);
  amp_state_free(S);
}

static void many_threads(int round)
{
  (void)amp_set_threads(4);
  child(round);
  amp_state *S = amp_state_new();
  amp_ref a = matrix(S, 512, 1), b = { NULL };
  EXPECT(amp_op2(S, AMP_OP_add, &b, &a, &a) == 0);
  amp_release(&b);
  EXPECT(amp_op2(S, AMP_OP_matmul, &b, &a, &a) == 0);
  amp_release(&a);
  amp_release(&b);
  amp_state_free(S);
}

int main(void)
{
  pthread_t t[THREADS];
  amp_state *S = amp_state_new();
  int before = 0, ended = 0;
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, busy, (void *)i) == 0);
  for (int i = 0; i < FORKS; i++) {
    int status = status_of(child, i);
    before += status != 0;
    if (WIFSIGNALED(status)) ended++;
    if (before >= 3) break; /* each took its whole time */
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  CHECK(before == 0);
  CHECK(ended == 0);
  many_threads(0);
  CHECK(status_of(many_threads, 1) == 0);
  CHECK(status_of(many_threads, 2) == 0);
  amp_state_free(S);
  CHECK(atomic_load(&wrong) == 0);
  return DONE();
}
