/*
** embed.c: LuaJIT and amp inside a C program. Lua trains; C takes the trained
** weight out of Lua by its handle and reads it through amp.h.
**
**   cc embed.c $(pkg-config --cflags --libs amp luajit) -o embed && ./embed
**
** examples/guide/embedding.md says what PKG_CONFIG_PATH and LUA_PATH are to be where LuaRocks installed amp.
*/
#include <stdio.h>
#include <amp.h>
#include <lauxlib.h>
#include <lualib.h>

static const char script[] =
  "local amp = require 'amp' amp.errors 'string'\n" /* an error is its text, which lua_tostring gives */
  "amp.manual_seed(1)\n"
  "local net, x = amp.nn.Linear(1, 1), amp.linspace(-1, 1, 32):view(-1, 1)\n"
  "local opt = amp.optim.SGD(net:parameters(), {lr = 0.2})\n"
  "for _ = 1, 100 do\n"
  "  local loss = amp.autocast({dtype = 'bfloat16'}, function() return amp.mse_loss(net(x), 3 * x) end)\n"
  "  loss:backward() opt:step():clear_grad()\n"
  "end\n"
  "return net.weight\n";

int main(void)
{
  amp_state *S = amp_state_new(); /* this thread's, for the calls that C makes itself */
  lua_State *L = luaL_newstate();
  double weight;
  luaL_openlibs(L);
  if (luaL_dostring(L, script)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    return 1;
  }
  const amp_ref *handle = lua_topointer(L, -1); /* Lua's own handle: lives while Lua's value does */
  if (amp_item(S, handle, &weight) < 0) { fprintf(stderr, "%s\n", S->err.message); return 1; }
  printf("weight %.2f\n", weight);
  lua_close(L);
  amp_state_free(S);
  return 0;
}
