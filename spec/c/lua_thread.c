/*
** lua_thread.c: run a script in a Lua state of a thread with a stack of so many KiB (0: on the main thread), several
** times over in states one after the other, each closed before the next.
**
**   lua_thread KIB TIMES script.lua [arguments]
**
** The script's result, if it is a function, is kept as a coroutine that is resumed once and left: regions are open at
** the close.
*/
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int argc_;
static char **argv_;

static int once(void)
{
  lua_State *L = luaL_newstate();
  if (L == NULL) return 1;
  luaL_openlibs(L);
  lua_newtable(L);
  for (int i = 3; i < argc_; i++) {
    lua_pushstring(L, argv_[i]);
    lua_rawseti(L, -2, i - 3);
  }
  lua_setglobal(L, "arg");
  int bad = luaL_loadfile(L, argv_[3]) || lua_pcall(L, 0, 1, 0);
  if (bad) fprintf(stderr, "%s\n", lua_tostring(L, -1));
  else if (lua_isfunction(L, -1)) {
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, -2);
    lua_xmove(L, co, 1);
    bad = lua_resume(co, 0) != LUA_YIELD;
    if (bad) fprintf(stderr, "no yield: %s\n", lua_tostring(co, -1));
  }
  lua_close(L);
  return bad;
}

static void *run(void *unused)
{
  (void)unused;
  int bad = 0;
  for (int i = atoi(argv_[2]); i > 0 && !bad; i--) bad = once();
  return bad ? &argc_ : NULL;
}

int main(int argc, char **argv)
{
  if (argc < 4) return 2;
  argc_ = argc;
  argv_ = argv;
  size_t bytes = (size_t)atoi(argv[1]) * 1024;
  if (bytes == 0) return run(NULL) != NULL;
  pthread_attr_t attr;
  pthread_t thread;
  void *result = NULL;
  if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, bytes) || pthread_create(&thread, &attr, run, NULL))
    return 3;
  pthread_join(thread, &result);
  return result != NULL;
}
