/*
** graph/pass_join.c: finds nodes that one row does together. What is looked for is data (graph/pass_join_rows.c).
**
** The joined node stands where the last of them stood. It reads there what the others read before, so nothing between
** may write that; results of the others must have no other use.
*/
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include "graph/pass_join.h"

/* -- Text of a pattern ------------------------------------------------------------------ */

static bool word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *skip_space(const char *at)
{
  while (*at == ' ' || *at == ',') at++;
  return at;
}

/* Is a value named here, not a row? */
static bool is_letter(const char *at) { return !word(at[1]) && at[1] != '('; }

/* Behind the operand that begins here. */
static const char *skip_operand(const char *at)
{
  int depth = 0;
  for (at = skip_space(at); *at; at++) {
    if (*at == '(') depth++;
    else if (*at == ')') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    } else if (*at == ',' && depth == 0) return at;
  }
  return at;
}

/* The row that is named here, *end behind the name and its marks; -1: a letter or a number. */
static int row_at(const char *at, const char **end, bool *free_attributes, bool *stays)
{
  char name[64];
  size_t n = 0;
  while (word(at[n]) && n + 1 < sizeof name) n++;
  memcpy(name, at, n);
  name[n] = 0;
  at += n;
  *free_attributes = *stays = false;
  for (; *at == '*' || *at == '!'; at++)
    if (*at == '*') *free_attributes = true;
    else *stays = true;
  *end = at;
  return *at == '(' ? amp_op_find(name) : -1;
}

static int places_before(const char *text, const char *at)
{
  int count = 0;
  for (; text < at; text++) count += *text == '(';
  return count;
}

/* -- Matching ----------------------------------------------------------------------------- */

typedef struct matcher {
  join *j;
  const char *text;
  const bool *taken;
  int second;           /* place of the node whose result stays, 0: none */
  amp_graph_miss *miss; /* what keeps nodes apart is noted here, and matching goes on; NULL: it ends there */
} matcher;

/* Nodes are not to be joined. Does matching go on all the same? */
static bool noted(const matcher *m, int first, int second, int why, int other)
{
  if (m->miss == NULL) return false;
  if (m->miss->why == 0) *m->miss = (amp_graph_miss){ first, second, -1, why, other };
  return true;
}

static bool match_node(matcher *m, const char *at, int k);

/* The last node before `reader` that makes the value, or writes it in place; -1: none */
static int maker(const graph_pass *p, int value, int reader)
{
  int last = pass_value(p, value)->node;
  for (int i = p->user_from[value]; i < p->user_from[value + 1]; i++) {
    int k = p->user[i];
    if (k >= reader) break;
    if (p->graph->nodes[k].flags && p->graph->nodes[k].out[0] == value) last = k;
  }
  return last;
}

static bool unused_beside(const graph_pass *p, const amp_graph_node *n)
{
  for (int i = 1; i < n->nout; i++)
    if (n->out[i] >= 0 && (p->user_from[n->out[i] + 1] > p->user_from[n->out[i]] || pass_is_output(p, n->out[i])))
      return false;
  return true;
}

/* Of the value that node `made` gives, is `reader` the only user? 0, or why not; *other: who reads it as well. */
static int other_use(const matcher *m, int value, int made, int reader, bool stays, int *other)
{
  const graph_pass *p = m->j->pass;
  const amp_graph_node *r = &p->graph->nodes[reader];
  bool over = r->flags && r->in[0] == value; /* what comes after is the reader's result */
  int root = m->j->node[0];
  *other = -1;
  if (!over && !stays && pass_is_output(p, value)) return AMP_G_WHY_OUTPUT;
  for (int i = p->user_from[value]; i < p->user_from[value + 1]; i++) {
    int k = p->user[i];
    if (k <= made || k == reader) continue;
    if (k < reader || (!over && !(stays && k > root))) {
      *other = k;
      return AMP_G_WHY_READ;
    }
  }
  if (!unused_beside(p, &p->graph->nodes[made])) return AMP_G_WHY_READ;
  bool still = pass_unwritten(p, value, made, reader) && (!stays || !pass_class(p, value, CLASS_WRITTEN));
  return still ? 0 : AMP_G_WHY_WRITTEN;
}

static bool match_letter(matcher *m, const char *at, int32_t value)
{
  bool capital = isupper((unsigned char)*at);
  int letter = *at - (capital ? 'A' : 'a');
  join *j = m->j;
  double number;
  if (j->bound[capital][letter]) return j->value[capital][letter] == value;
  if (value < 0 && at[1] != '?') return false;
  if (value >= 0 && (value >= j->pass->nvalue || capital != pass_number(j->pass, value, &number))) return false;
  if (value >= 0 && !capital && pass_value(j->pass, value)->kind == AMP_G_NUMBER) return false;
  j->bound[capital][letter] = true;
  j->value[capital][letter] = value;
  return true;
}

static bool match_operand(matcher *m, const char *at, int32_t value, int reader)
{
  const graph_pass *p = m->j->pass;
  at = skip_space(at);
  if (isdigit((unsigned char)*at) || *at == '-') {
    double number, wanted = strtod(at, NULL);
    return pass_number(p, value, &number) && fabs(number - wanted) <= 1e-6 * fabs(wanted);
  }
  if (is_letter(at)) return match_letter(m, at, value);
  const char *end;
  bool free_attributes, stays;
  int op = row_at(at, &end, &free_attributes, &stays);
  if (value < 0 || value >= p->nvalue) return false;
  int k = maker(p, value, reader);
  if (k < 0 || op < 0 || p->graph->nodes[k].op != op) return false;
  int other, why = other_use(m, value, k, reader, stays, &other);
  if (why && !noted(m, k, reader, why, other)) return false;
  if (stays) m->second = places_before(m->text, end);
  return match_node(m, at, k);
}

static bool match_operands(matcher *m, const char *at, int k, bool swapped)
{
  const amp_graph_node *n = &m->j->pass->graph->nodes[k];
  int count = 0;
  for (at = skip_space(at); *at && *at != ')'; at = skip_space(skip_operand(at)), count++) {
    int from = swapped ? 1 - count : count;
    if (!match_operand(m, at, from < n->nin ? n->in[from] : -1, k)) return false;
  }
  for (; count < n->nin; count++)
    if (n->in[count] >= 0) return false;
  return true;
}

static bool plain_node(const matcher *m, int k, bool free_attributes)
{
  const graph_pass *p = m->j->pass;
  const amp_graph_node *n = &p->graph->nodes[k];
  if (p->dead[k] || m->taken[k] || k >= p->nnode || (n->flags & AMP_OUT)) return false;
  int root = m->j->node[0];
  if (amp_policy_get(n->op) != amp__ops[n->op].info.policy && !noted(m, k, root, AMP_G_WHY_CLASS, -1)) return false;
  size_t bytes = sizeof(amp_slot) * (size_t)amp__ops[n->op].info.nslot;
  bool other = p->sized[k] || (!free_attributes && memcmp(n->attrs, amp__ops[n->op].defaults, bytes) != 0);
  return !other || noted(m, k, root, AMP_G_WHY_ATTRIBUTES, -1);
}

/* Node k against ROW(...) */
static bool match_node(matcher *m, const char *at, int k)
{
  const char *end;
  bool free_attributes, stays;
  join *j = m->j;
  int op = row_at(at, &end, &free_attributes, &stays), place = places_before(m->text, end);
  if (j->pass->graph->nodes[k].op != op || place >= JOIN_NODES || !plain_node(m, k, free_attributes)) return false;
  j->node[place] = k;
  if (place >= j->nnode) j->nnode = place + 1;
  join before = *j;
  if (match_operands(m, end + 1, k, false)) return true;
  if (op != AMP_OP_add && op != AMP_OP_mul) return false;
  *j = before;
  return match_operands(m, end + 1, k, true);
}

/* -- May they become one? -------------------------------------------------------------------- */

static bool is_matched(const join *j, int k)
{
  for (int i = 0; i < j->nnode; i++)
    if (j->node[i] == k) return true;
  return false;
}

static bool is_bound(const join *j, int32_t value)
{
  for (int i = 0; i < JOIN_VALUES; i++)
    if (j->bound[0][i] && j->value[0][i] == value) return true;
  return false;
}

/* Node k, which draws or moves statistics, comes after the nodes between it and the last one. */
static bool may_wait(const join *j, int k)
{
  const graph_pass *p = j->pass;
  const amp_graph_node *n = &p->graph->nodes[k];
  bool draws = pass_draws(n), changes = n->flags == 0 && pass_changes(n);
  if (!draws && !changes) return true;
  for (int other = k + 1; other < j->node[0]; other++) {
    const amp_graph_node *o = &p->graph->nodes[other];
    if (p->dead[other] || is_matched(j, other)) continue;
    if (draws && pass_draws(o)) return false;
    for (int i = 0; changes && i < o->nin; i++)
      for (int s = 1; o->in[i] >= 0 && s < n->nin; s++)
        if (n->in[s] >= 0 && o->in[i] < p->nvalue && p->storage[o->in[i]] == p->storage[n->in[s]]
            && pass_class(p, n->in[s], CLASS_WRITTEN))
          return false;
  }
  return true;
}

/* Backward of the joined node may need an operand or its result that the others did without: nothing writes these
 * later. */
static bool stays_as_is(const join *j)
{
  const graph_pass *p = j->pass;
  int root = j->node[0];
  for (int i = 0; i < JOIN_VALUES; i++)
    if (j->bound[0][i] && j->value[0][i] >= 0 && !pass_unwritten(p, j->value[0][i], root, INT32_MAX)) return false;
  return pass_unwritten(p, p->graph->nodes[root].out[0], root, INT32_MAX);
}

/* 0, or why the nodes can't become one where the last of them is. */
static int why_not_move(const join *j)
{
  const graph_pass *p = j->pass;
  int root = j->node[0];
  for (int i = 1; i < j->nnode; i++)
    if (!pass_same_modes(join_node(j, i), &p->graph->nodes[root])) return AMP_G_WHY_MODES;
  if (!stays_as_is(j)) return AMP_G_WHY_WRITTEN;
  for (int i = 0; i < j->nnode; i++) {
    int k = j->node[i];
    const amp_graph_node *n = &p->graph->nodes[k];
    if (n->flags && is_bound(j, n->in[0])) return AMP_G_WHY_WRITTEN; /* it writes what is an operand of all */
    for (int other = 0; other < i; other++)
      if (j->node[other] == k) return AMP_G_WHY_READ;
    if (i == 0) continue;
    if (n->out[0] >= 0 && is_bound(j, n->out[0])) return AMP_G_WHY_READ; /* an operand beside itself */
    for (int o = 0; o < n->nin; o++)
      if (n->in[o] >= 0 && is_bound(j, n->in[o]) && !pass_unwritten(p, n->in[o], k, root)) return AMP_G_WHY_WRITTEN;
    if (!may_wait(j, k)) return AMP_G_WHY_ORDER;
  }
  return 0;
}

/* How a graph is run, as far as joins depend on it. */
typedef struct setting {
  bool anywhere, region; /* as pass_join */
  bool trains;           /* on a CPU what is lean stays so */
} setting;

static int why_not_here(const join *j, const join_row *row, const setting *to)
{
  const amp_graph_node *root = join_node(j, 0);
  int device = pass_value(j->pass, root->out[0])->device;
  if (!to->anywhere && !(row->where & (device == AMP_CPU ? JOIN_CPU : JOIN_GPU))) return AMP_G_WHY_DEVICE;
  if (!to->anywhere && device == AMP_CPU && to->trains && (row->where & JOIN_LEAN)) return AMP_G_WHY_TRAINS;
  if (!(row->where & JOIN_REGION)) return 0;
  bool off = !root->autocast[device].enabled;
  return off && (to->region || (root->regions >> device & 1)) ? 0 : AMP_G_WHY_REGION;
}

/* -- Joining ----------------------------------------------------------------------------------- */

/* The values that a result's text names; rows inside become nodes. */
static int operands(graph_pass *p, const join *j, const char *at, int32_t *in)
{
  int n = 0;
  for (at = skip_space(at); *at && *at != ')'; at = skip_space(skip_operand(at))) {
    if (is_letter(at)) {
      int letter = *at - 'a';
      in[n++] = j->bound[0][letter] ? j->value[0][letter] : -1;
      continue;
    }
    const char *end;
    bool ignored, also;
    int op = row_at(at, &end, &ignored, &also);
    int32_t inner[AMP_MAX_IN];
    int count = operands(p, j, end + 1, inner);
    if (count < 1) return count < 0 ? count : amp__fail(AMP_E_STATE, "a join without operands");
    amp_graph_value result = p->graph->values[inner[0]].info;
    if (op == AMP_OP_flatten) {
      for (int d = 1; d < result.ndim; d++) result.size[0] *= result.size[d];
      result.ndim = 1;
    } else if (op == AMP_OP_logical_not) result.dtype = AMP_BOOL;
    int rc = pass_add(p, op, inner, count, NULL, p->place[j->node[0]] - 0.5, j->node[0], &result);
    if (rc < 0) return rc;
    in[n++] = rc;
  }
  while (n > 0 && in[n - 1] < 0) n--;
  return n;
}

static int replace(graph_pass *p, const join *j, const join_row *row, int second, bool *taken)
{
  const char *end;
  bool ignored, also;
  int op = row_at(row->result, &end, &ignored, &also), root = j->node[0];
  int32_t in[AMP_MAX_IN], stays = second ? p->graph->nodes[j->node[second]].out[0] : -1;
  int n = operands(p, j, end + 1, in);
  if (n < 0) return n;
  int rc = pass_rewrite(p, root, op, in, n, j->attrs);
  if (rc < 0) return rc;
  if (stays >= 0) {
    p->graph->nodes[root].out[1] = stays;
    p->graph->nodes[root].nout = 2;
  }
  taken[root] = true;
  for (int i = 1; i < j->nnode; i++) {
    taken[j->node[i]] = true;
    pass_kill(p, j->node[i]);
  }
  return 0;
}

/* For each row of the table, the op that its pattern ends with; to be freed. NULL: no memory. */
static int *last_ops(void)
{
  const char *end;
  bool ignored, also;
  int *ops = malloc(sizeof *ops * (size_t)graph_join_count);
  for (int r = 0; ops && r < graph_join_count; r++) ops[r] = row_at(graph_join_rows[r].pattern, &end, &ignored, &also);
  return ops;
}

static int try_rows(graph_pass *p, int k, const int *ops, bool *taken, const setting *to)
{
  for (int r = 0; r < graph_join_count; r++) {
    const join_row *row = &graph_join_rows[r];
    const char *end;
    bool ignored, also;
    if (ops[r] != p->graph->nodes[k].op) continue;
    join j = { .pass = p, .node = { k } };
    matcher m = { &j, row->pattern, taken, 0, NULL };
    int op = row_at(row->result, &end, &ignored, &also);
    if (!match_node(&m, row->pattern, k)) continue;
    if (amp_policy_get(op) != amp__ops[op].info.policy) continue;
    memcpy(j.attrs, amp__ops[op].defaults, sizeof j.attrs);
    if (why_not_here(&j, row, to) || why_not_move(&j) || (row->fits && !row->fits(&j))) continue;
    int rc = replace(p, &j, row, m.second, taken);
    return rc < 0 ? rc : 1;
  }
  return 0;
}

double join_number(const join *j, char letter)
{
  double number = 0;
  pass_number(j->pass, j->value[letter < 'a'][letter < 'a' ? letter - 'A' : letter - 'a'], &number);
  return number;
}

bool join_same_size(const join *j, const amp_graph_value *a, const amp_graph_value *b)
{
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->size[d] != b->size[d] || (a->size[d] == 1 && j->pass->graph->nfree > 0)) return false;
  return true;
}

static int join_once(amp_graph *g, const int *ops, const setting *to)
{
  graph_pass p;
  int rc = pass_open(&p, g), count = 0;
  if (rc < 0) return rc;
  bool *taken = calloc((size_t)g->nnode + 1, sizeof *taken);
  if (taken == NULL) rc = amp__nomem((size_t)g->nnode);
  for (int k = p.nnode - 1; rc >= 0 && k >= 0; k--) {
    if (p.dead[k] || taken[k] || g->nodes[k].op < 0 || g->nodes[k].out[0] < 0) continue;
    if ((rc = try_rows(&p, k, ops, taken, to)) > 0) count++;
  }
  free(taken);
  rc = pass_close(&p, rc < 0 ? rc : 0);
  return rc < 0 ? rc : count;
}

enum { ROUNDS = 4 }; /* what a join gives may be part of another */

int pass_join(amp_graph *g, bool anywhere, bool region)
{
  const setting to = { anywhere, region, region && amp__S->grad_mode };
  int rc = 1, *ops = last_ops();
  if (ops == NULL) return amp__nomem(sizeof *ops * (size_t)graph_join_count);
  for (int i = 0; i < ROUNDS && rc > 0; i++) rc = join_once(g, ops, &to);
  free(ops);
  return rc < 0 ? rc : 0;
}

/* -- What was not joined ------------------------------------------------------------------------------ */

/* Does a row of the table fit here but for what *miss says? (Nothing: then no pass has run.) */
static bool missed_by(graph_pass *p, int k, const join_row *row, const bool *taken, const setting *to,
                      amp_graph_miss *miss)
{
  const char *end;
  bool ignored, also;
  join j = { .pass = p, .node = { k } };
  matcher m = { &j, row->pattern, taken, 0, miss };
  *miss = (amp_graph_miss){ .other = -1 };
  if (!match_node(&m, row->pattern, k) || j.nnode < 2) return false;
  int op = row_at(row->result, &end, &ignored, &also);
  memcpy(j.attrs, amp__ops[op].defaults, sizeof j.attrs);
  bool fits = row->fits == NULL || row->fits(&j), bias = true;
  if (j.bound[0]['b' - 'a'] && j.value[0]['b' - 'a'] >= 0) {
    int kind = join_value(&j, 'b')->kind;
    bias = kind == AMP_G_PARAMETER || kind == AMP_G_BUFFER;
  }
  if (!fits && (miss->why || !bias)) return false; /* another case altogether, such as a sum that is no bias */
  if (miss->why == 0) {
    int why = !fits ? AMP_G_WHY_SHAPES : why_not_here(&j, row, to);
    if (amp_policy_get(op) != amp__ops[op].info.policy) why = AMP_G_WHY_CLASS;
    if (why == 0) why = why_not_move(&j);
    *miss = (amp_graph_miss){ j.node[1], k, -1, why, -1 };
  } else if (miss->first == k) miss->first = j.node[1];
  miss->op = op;
  return true;
}

int amp_graph_missed(amp_state *S, amp_graph *g, int passes, amp_graph_miss *list, int room)
{
  AMP_ENTER(S);
  if (g == NULL || !g->finished) return amp__fail(AMP_E_STATE, "the graph is not finished");
  const setting to = { passes & AMP_G_ANYWHERE, passes & AMP_G_REGION, passes & AMP_G_TRAINS };
  graph_pass p;
  int rc = pass_open(&p, g), count = 0, *ops = NULL;
  if (rc < 0) return rc;
  bool *taken = calloc((size_t)g->nnode + 1, sizeof *taken);
  if (taken == NULL || (ops = last_ops()) == NULL) rc = amp__nomem((size_t)g->nnode);
  for (int k = 0; rc == 0 && k < p.nnode; k++)
    for (int r = 0; r < graph_join_count; r++) {
      amp_graph_miss miss;
      if (ops[r] != g->nodes[k].op || !missed_by(&p, k, &graph_join_rows[r], taken, &to, &miss)) continue;
      if (count < room) list[count] = miss;
      count++;
      break;
    }
  free(ops);
  free(taken);
  rc = pass_close(&p, rc);
  return rc < 0 ? rc : count;
}
