/*
** test_graph.c: graphs from files, run without Lua: values, errors of the calling thread, many threads on one graph,
*files
** that hold what no writer of ours would write, and failed allocations at every step. Clean under ThreadSanitizer when
** built without OpenMP.
*/
#define _GNU_SOURCE
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core.h"
#include "check.h"

enum { WIDTH = 64, LAYERS = 3, THREADS = 8, ROUNDS = 200, ROWS = 2 };

static char path[] = "/tmp/amp_test_graph_XXXXXX";
static _Atomic int wrong;
#define EXPECT(cond)                                                                                   \
  do {                                                                                                 \
    if (!(cond) && atomic_fetch_add(&wrong, 1) < 10) printf("%s:%d: %s\n", __FILE__, __LINE__, #cond); \
  } while (0)

/* -- A file -------------------------------------------------------------------------- */

typedef struct text {
  char *at;
  size_t length;
} text;

static void add(text *t, const char *fmt, ...)
{
  va_list args;
  char *more;
  va_start(args, fmt);
  int n = vasprintf(&more, fmt, args);
  va_end(args);
  t->at = realloc(t->at, t->length + (size_t)n + 1);
  memcpy(t->at + t->length, more, (size_t)n + 1);
  t->length += (size_t)n;
  free(more);
}

/* What a string of JSON is in one. */
static void add_quoted(text *t, const char *from)
{
  for (; *from; from++) add(t, *from == '"' || *from == '\\' ? "\\%c" : "%c", *from);
}

/* A safetensors file of a graph's text and float32 tensors of these names and sizes, all elements 0.5 / WIDTH. */
static void write_file(const char *graph, const char *tensors, size_t elements)
{
  text t = { calloc(1, 1), 0 };
  add(&t, "{\"__metadata__\":{\"amp.graph\":\"");
  add_quoted(&t, graph);
  add(&t, "\"}%s}", tensors);
  FILE *f = fopen(path, "wb");
  uint64_t length = t.length;
  CHECK(f && fwrite(&length, 8, 1, f) == 1 && fwrite(t.at, t.length, 1, f) == 1);
  for (size_t i = 0; i < elements; i++) {
    float v = 0.5f / WIDTH;
    fwrite(&v, 4, 1, f);
  }
  fclose(f);
  free(t.at);
}

static void value(text *t, const char *name, const char *kind, const char *shape, const char *more)
{
  add(t, "%s{\"name\":\"%s\",\"kind\":\"%s\",\"dtype\":\"float32\",\"shape\":[%s],\"device\":\"cpu\"%s}",
      t->at[t->length - 1] == '[' ? "" : ",", name, kind, shape, more);
}

static void node(text *t, const char *name, const char *op, const char *inputs)
{
  add(t, "%s{\"name\":\"%s\",\"op\":\"%s\",\"inputs\":[%s],", t->at[t->length - 1] == '[' ? "" : ",", name, op, inputs);
  add(t, "\"outputs\":[{\"name\":\"%s\",\"dtype\":\"float32\",\"shape\":[2,64],\"device\":\"cpu\"}]}", name);
}

/* An MLP of LAYERS layers of WIDTH, ReLU between them. */
static void write_mlp(void)
{
  text g = { calloc(1, 1), 0 }, tensors = { calloc(1, 1), 0 };
  char name[64], more[128];
  size_t at = 0;
  add(&g, "{\"version\":1,\"values\":[");
  value(&g, "x", "input", "2,64", ",\"free\":[1]");
  for (int k = 0; k < LAYERS; k++)
    for (int bias = 0; bias < 2; bias++) {
      size_t bytes = bias ? 4 * WIDTH : 4 * WIDTH * WIDTH;
      snprintf(name, sizeof name, "%d.%s", k, bias ? "bias" : "weight");
      snprintf(more, sizeof more, ",\"tensor\":\"%s\",\"requires_grad\":true,\"weight\":true", name);
      value(&g, name, "parameter", bias ? "64" : "64,64", more);
      add(&tensors, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", name,
          bias ? "64" : "64,64", at, at + bytes);
      at += bytes;
    }
  add(&g, "],\"nodes\":[");
  for (int k = 0; k < LAYERS; k++) {
    char inputs[96];
    snprintf(name, sizeof name, k ? "relu%d" : "x", k - 1);
    snprintf(inputs, sizeof inputs, "\"%s\",\"%d.weight\",\"%d.bias\"", name, k, k);
    snprintf(name, sizeof name, "linear%d", k);
    node(&g, name, "linear", inputs);
    if (k == LAYERS - 1) break;
    snprintf(inputs, sizeof inputs, "\"linear%d\"", k);
    snprintf(name, sizeof name, "relu%d", k);
    node(&g, name, "relu", inputs);
  }
  add(&g, "],\"outputs\":[\"linear%d\"]}", LAYERS - 1);
  write_file(g.at, tensors.at, at / 4);
  free(g.at);
  free(tensors.at);
}

static amp_ref ones(amp_state *S, int rows, double v)
{
  double *data = malloc(sizeof *data * (size_t)rows * WIDTH);
  int64_t size[2] = { rows, WIDTH };
  amp_ref r = { NULL };
  for (int i = 0; i < rows * WIDTH; i++) data[i] = v;
  EXPECT(amp_from_double(S, &r, data, 2, size, AMP_FLOAT32) == 0);
  free(data);
  return r;
}

/* A layer makes of v: v / 2 + 0.5 / WIDTH. */
static double expected(double v)
{
  for (int k = 0; k < LAYERS; k++) v = v * 0.5 + 0.5 / WIDTH;
  return v;
}

/* -- One thread ------------------------------------------------------------------------- */

static void test_run(amp_state *S)
{
  amp_graph *g = amp_graph_load(S, path, AMP_CPU);
  CHECK(g != NULL);
  if (g == NULL) {
    printf("%s: %s\n", S->err.op, S->err.message);
    return;
  }
  CHECK(amp_graph_inputs(g) == 1 && amp_graph_outputs(g) == 1 && amp_graph_text(g) != NULL);
  for (int rows = 0; rows < 4; rows++) {
    amp_ref x = ones(S, rows, 3), y = { NULL };
    double got[4 * WIDTH];
    amp_state_use(S);
    OK(amp_graph_run(g, &x, 1, &y, 1));
    OK(amp_read(S, &y, got, rows * WIDTH));
    for (int i = 0; i < rows * WIDTH; i++) CHECK_NEAR(got[i], expected(3), 1e-5);
    amp_release(&x);
    amp_release(&y);
  }
  amp_ref x = ones(S, ROWS, 1), y = { NULL }, gone = { NULL };
  CHECK(amp_graph_run(g, &x, 2, &y, 1) == AMP_E_ARGUMENT && y.t == NULL);
  CHECK(amp_graph_run(g, &x, 1, &y, 2) == AMP_E_ARGUMENT && y.t == NULL);
  CHECK(strcmp(S->err.op, "graph_run") == 0);
  CHECK(amp_graph_run(g, &gone, 1, &y, 1) == AMP_E_ARGUMENT && y.t == NULL);
  CHECK(amp_graph_run(NULL, &x, 1, &y, 1) == AMP_E_STATE && y.t == NULL);
  CHECK(amp_graph_run(g, NULL, 1, &y, 1) == AMP_E_ARGUMENT && y.t == NULL);
  CHECK(amp_graph_run(g, &x, 1, NULL, 1) == AMP_E_ARGUMENT);
  CHECK(amp_graph_inputs(NULL) == 0 && amp_graph_outputs(NULL) == 0 && amp_graph_text(NULL) == NULL);
  CHECK(amp_graph_load(S, "/nowhere/at/all", AMP_CPU) == NULL && strstr(S->err.message, "/nowhere/at/all") != NULL);
  CHECK(amp_graph_load(S, path, 999999) == NULL && S->err.code == AMP_E_DEVICE);
  CHECK(amp_graph_load(S, path, -1) == NULL && S->err.code == AMP_E_DEVICE);
  CHECK(amp_graph_load(S, NULL, AMP_CPU) == NULL && S->err.code == AMP_E_ARGUMENT);
  OK(amp_graph_to(S, g, AMP_CPU));
  CHECK(amp_graph_to(S, g, 1 << 20) == AMP_E_DEVICE);
  amp_release(&x);
  amp_graph_free(g);
  amp_graph_free(NULL);
}

/* Failed allocations: an error or a result, and nothing lost (the sanitizer sees what is). */
static void test_memory(amp_state *S)
{
  for (int n = 0; n < 40; n++) {
    amp_fail_allocation(n);
    amp_graph *g = amp_graph_load(S, path, AMP_CPU);
    amp_fail_allocation(-1);
    CHECK(g != NULL || S->err.code == AMP_E_MEMORY);
    amp_graph_free(g);
  }
  amp_graph *g = amp_graph_load(S, path, AMP_CPU);
  for (int n = 0; g && n < 12; n++) {
    amp_ref x = ones(S, ROWS, 1), y = { NULL };
    amp_fail_allocation(n);
    int rc = amp_graph_run(g, &x, 1, &y, 1);
    amp_fail_allocation(-1);
    CHECK(rc == 0 ? y.t != NULL : rc == AMP_E_MEMORY && y.t == NULL);
    amp_release(&x);
    amp_release(&y);
  }
  amp_graph_free(g);
}

/* A graph of these values, nodes and outputs. */
#define GRAPH(values, nodes, outputs) \
  "{\"version\":1,\"values\":[" values "],\"nodes\":[" nodes "],\"outputs\":[" outputs "]}"
#define NODE(op, inputs, more) "{\"name\":\"a\",\"op\":\"" op "\",\"inputs\":[" inputs "],\"outputs\":[]" more "}"
#define REGION(word) "{\"version\":1,\"region\":" word ",\"values\":[],\"nodes\":[],\"outputs\":[]}"
#define SHAPE_AND_VALUE "\"shape\":[2],\"value\":1"

/* A graph whose function asked for the region it was in runs there alone. */
static void test_region(amp_state *S)
{
  static const char *const regions[] = { "cpu bfloat16, cuda off", "cpu off, cuda float16", "cpu off, cuda off" };
  for (int i = 0; i < 3; i++) {
    char text[256];
    snprintf(text, sizeof text,
             "{\"version\":1,\"region\":\"%s\",\"values\":[{\"name\":\"a\",\"kind\":\"number\",\"value\":1.5}],"
             "\"nodes\":[],\"outputs\":[\"a\"]}",
             regions[i]);
    write_file(text, "", 0);
    amp_graph *g = amp_graph_load(S, path, AMP_CPU);
    amp_ref out = { NULL };
    CHECK(g != NULL);
    int rc = amp_graph_run(g, NULL, 0, &out, 1);
    if (i < 2) CHECK(rc == AMP_E_UNSUPPORTED && out.t == NULL && strstr(S->err.message, "region") != NULL);
    if (i == 2) CHECK(rc == 0 && out.t != NULL);
    amp_release(&out);
    amp_graph_free(g);
  }
}

static void test_hostile(amp_state *S)
{
  static const char *const graphs[] = {
    GRAPH("", NODE("detach", "", ""), ""),
    GRAPH("", NODE("cat", "null", ""), ""),
    GRAPH("", NODE("relu", "\"a\"", ""), ""),
    GRAPH("", NODE("full", "", ",\"out\":true,\"attrs\":{" SHAPE_AND_VALUE "}"), ""),
    GRAPH("", NODE("full", "", ",\"attrs\":{" SHAPE_AND_VALUE ",\"dtype\":\"int4\"}"), ""),
    GRAPH("", NODE("full", "", ",\"attrs\":{\"shape\":[2]}"), ""),
    GRAPH("", "", "\"a\""),
    GRAPH("{\"name\":\"a\",\"kind\":\"number\",\"value\":\"nano\"}", "", ""),
    "{\"version\":9223372036854775808,\"values\":[],\"nodes\":[],\"outputs\":[]}",
    "{\"version\":1,\"values\":[],\"nodes\":[],\"outputs\":[]",
    REGION("1"),
    REGION("\"cpu off\""),
    REGION("\"cpu float32, cuda off\""),
    REGION("\"cpu off, cuda offal\""),
    REGION("\"cuda off, cpu off\""),
    "",
  };
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
    write_file(graphs[i], "", 0);
    CHECK(amp_graph_load(S, path, AMP_CPU) == NULL);
    CHECK(strstr(S->err.message, path) != NULL);
  }
  write_file(GRAPH("{\"name\":\"a\",\"kind\":\"number\",\"value\":1.5}", "", "\"a\""), "", 0);
  setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is there, a number has a comma */
  amp_graph *g = amp_graph_load(S, path, AMP_CPU);
  amp_ref out = { NULL };
  double v = 0;
  OK(amp_graph_run(g, NULL, 0, &out, 1));
  OK(amp_item(S, &out, &v));
  CHECK(v == 1.5);
  setlocale(LC_ALL, "C");
  amp_release(&out);
  amp_graph_free(g);
}

/* -- Threads ------------------------------------------------------------------------------ */

static amp_graph *shared;

/* Every second thread has no state of its own; some record history, some run in a region. */
static void *runner(void *arg)
{
  int me = (int)(intptr_t)arg;
  amp_state *S = me % 2 ? amp_state_new() : NULL, *maker = amp_state_new();
  for (int i = 0; i < ROUNDS; i++) {
    amp_ref x = ones(maker, ROWS, me + 1), y = { NULL }, short_one = { NULL };
    double got[ROWS * WIDTH];
    if (S) {
      S->grad_mode = me % 4 == 1;
      S->autocast_on = S->autocast[AMP_CPU].enabled = me == 7 && i % 2;
      amp_state_use(S);
      EXPECT(amp_graph_run(shared, &x, 1, &y, 1) == 0);
      S->autocast_on = S->autocast[AMP_CPU].enabled = 0;
      if (i % 10 == 9) amp_autocast_leave(S);
    } else EXPECT(amp_graph_run(shared, &x, 1, &y, 1) == 0);
    EXPECT(y.t && amp_read(maker, &y, got, ROWS * WIDTH) == 0);
    EXPECT(fabs(got[0] - expected(me + 1)) < 0.05 && fabs(got[ROWS * WIDTH - 1] - expected(me + 1)) < 0.05);
    int64_t size[2] = { 1, WIDTH - 1 };
    EXPECT(amp_from_double(maker, &short_one, got, 2, size, AMP_FLOAT32) == 0);
    amp_release(&y);
    if (S) amp_state_use(S);
    EXPECT(amp_graph_run(shared, &short_one, 1, &y, 1) == AMP_E_SHAPE && y.t == NULL);
    EXPECT(strstr(amp_state_used()->err.message, "'x'") != NULL);
    amp_release(&short_one);
    amp_release(&x);
  }
  amp_state_free(S);
  amp_state_free(maker);
  return NULL;
}

static void test_threads(amp_state *S)
{
  pthread_t t[THREADS];
  shared = amp_graph_load(S, path, AMP_CPU);
  CHECK(shared != NULL);
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, runner, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  CHECK(atomic_load(&wrong) == 0);
  amp_graph_free(shared);
}

int main(void)
{
  int fd = mkstemp(path);
  amp_state *S = amp_state_new();
  CHECK(fd >= 0 && S != NULL);
  close(fd);
  write_mlp();
  test_run(S);
  test_memory(S);
  test_threads(S);
  test_region(S);
  test_hostile(S);
  unlink(path);
  amp_state_free(S);
  return DONE();
}
