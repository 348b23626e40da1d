/*
** two_states.c: two Lua states in two threads, each with its own autocast dtype
** and seed, train on one tensor that C made. Their trained weights outlive them:
** C keeps a count of each, closes the states and reads the weights.
**
** States share nothing but what they are given. A tensor may be read by many
** threads at once; one that somebody writes to needs the caller's lock.
**
**   cc two_states.c $(pkg-config --cflags --libs amp luajit) -pthread -lm -o two_states && ./two_states
**
** examples/guide/embedding.md says what PKG_CONFIG_PATH and LUA_PATH are to be where LuaRocks installed amp.
*/
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <amp.h>
#include <lauxlib.h>
#include <lualib.h>

enum { ROWS = 64 };

static amp_ref inputs; /* read by both */

struct job {
  const char *dtype;
  int seed;
  amp_ref weight; /* result */
  double loss;
};

static const char script[] =
  "local amp = require 'amp'\n"
  "local inputs, dtype, seed = ...\n"
  "local x = amp.from_ref(inputs) -- the same memory, nothing is copied\n"
  "amp.manual_seed(seed)\n"
  "local net = amp.nn.Linear(1, 1)\n"
  "local opt, scaler = amp.optim.SGD(net:parameters(), {lr = 0.2}), amp.GradScaler()\n"
  "local loss\n"
  "for _ = 1, 200 do\n"
  "  loss = amp.autocast({dtype = dtype}, function() return amp.mse_loss(net(x), 2 * x - 1) end)\n"
  "  scaler:scale(loss):backward()\n"
  "  scaler:step(opt):update()\n"
  "  opt:zero_grad()\n"
  "end\n"
  "return net.weight:detach(), loss:item()\n";

static void *train(void *arg)
{
  struct job *job = arg;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  int failed = luaL_loadstring(L, script);
  if (!failed) {
    lua_pushlightuserdata(L, &inputs);
    lua_pushstring(L, job->dtype);
    lua_pushinteger(L, job->seed);
    failed = lua_pcall(L, 3, 2, 0);
  }
  if (failed) {
    luaL_callmeta(L, -1, "__tostring"); /* amp's errors are objects with a text */
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
  } else {
    amp_retain(&job->weight, lua_topointer(L, -2));
    job->loss = lua_tonumber(L, -1);
  }
  lua_close(L);
  return NULL;
}

int main(void)
{
  struct job job[2] = { { "float16", 1, { NULL }, NAN }, { "bfloat16", 2, { NULL }, NAN } };
  const int64_t size[] = { ROWS, 1 };
  double values[ROWS];
  pthread_t thread[2];
  int status = 0;
  amp_state *S = amp_state_new();
  for (int i = 0; i < ROWS; i++) values[i] = 2.0 * i / (ROWS - 1) - 1;
  if (amp_from_double(S, &inputs, values, 2, size, AMP_FLOAT32) < 0) { fprintf(stderr, "%s\n", S->err.message); return 1; }

  for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, train, &job[i]);
  for (int i = 0; i < 2; i++) {
    double w = NAN;
    pthread_join(thread[i], NULL);
    if (job[i].weight.t == NULL || amp_item(S, &job[i].weight, &w) < 0 || !(fabs(w - 2) < 0.05)) status = 1;
    if (job[i].weight.t) printf("%s: weight %.2f, loss %.1e\n", job[i].dtype, w, job[i].loss);
    amp_release(&job[i].weight);
  }
  amp_release(&inputs);
  amp_state_free(S);
  return status;
}
