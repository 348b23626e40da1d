/*
** dispatch/device.c: the table a device fills, and the plug-ins that fill it.
**
** The CPU's slots are the kernels of src/cpu by name. Slots that the oneDNN
** plug-in serves start as `first_use`, which loads it (several milliseconds, so
** never at start-up), puts the plain kernel or the plug-in's in its place and
** goes on. A plug-in is libamp_NAME.so in the directory set by
** amp_set_plugin_dir, else AMP_PLUGIN_DIR, else this library's own; it is asked
** for once, refused when its table hash differs, and never unloaded.
** AMP_ONEDNN=0 keeps oneDNN out. LAPACK's plug-in takes no slot: rows of linear
** algebra ask for it at the first matrix that is large enough (AMP_LAPACK=0: never).
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "dispatch/dispatch.h"
#include "base/locks.h"
#include "cpu/isa.h"
#include "distributed/collectives.h"

static int cpu_copy(amp_tensor *dst, const amp_tensor *src)
{
  memcpy(amp__data(dst), amp__data(src), (size_t)src->numel * amp__dtype_size[src->dtype]);
  return 0;
}

static int cpu_sync(int index) { return 0; }

const char *amp_cpu_isa(void)
{
  static const char *const names[] = { "baseline", "avx2", "avx512" };
  return names[amp__cpu_isa()];
}

/* -- The core, for plug-ins ------------------------------------------------------- */

static amp_state *present(void) { return amp__S; }

static int fail_text(int code, int arg, const char *text)
{
  return arg > 0 ? amp__fail_arg(code, arg, "%s", text) : amp__fail(code, "%s", text);
}

static void bump(amp_storage *storage) { amp__capture_bump(storage); }

static const amp_core_api core
    = { present,       fail_text, amp__shape_str, amp__tensor_str, amp__tensor_make, amp__tensor_view, amp__free,
        amp__dispatch, amp__ops,  bump,           amp__fork_guest };

static uint64_t table_hash;        /* a plug-in must have the same */
static const amp_kernel_fn *plain; /* the CPU's own kernels, by op */

/* Ops whose slots a CPU plug-in may take: loading it for one changes no other op's results. */
static bool served(int op) { return amp__row_is(&amp__ops[op], AMP_R_SERVED); }

/* -- Plug-ins ------------------------------------------------------------------ */

typedef struct plugin {
  const char *name;
  bool tried, loaded;
  const char *variable;            /* of the environment: 0 keeps it out */
  const amp_collectives *together; /* of an engine of collectives */
  char info[512];                  /* version and path, or why not */
} plugin;

static int first_use(amp_call *call);
static plugin plugins[] = { { .name = "onednn", .variable = "AMP_ONEDNN" },
                            { .name = "cuda" },
                            { .name = "lapack", .variable = "AMP_LAPACK" },
                            { .name = "mpi_openmpi" },
                            { .name = "mpi_mpich" },
                            { .name = "nccl" } };
static int deterministic; /* what plug-ins are told when they are loaded; under AMP_LOCK_PLUGINS */
static char plugin_dir[1024];

void amp_set_plugin_dir(const char *dir)
{
  amp__lock(AMP_LOCK_PLUGINS);
  snprintf(plugin_dir, sizeof plugin_dir, "%s", dir ? dir : "");
  amp__unlock(AMP_LOCK_PLUGINS);
}

/* The folders to look in, in order: AMP_PLUGIN_DIR, then the one that was set, else this library's own. */
static const char *folder(int which, char *dir, size_t size)
{
  const char *env = getenv("AMP_PLUGIN_DIR");
  Dl_info info;
  if (which == 0) {
    if (env == NULL || *env == 0) return NULL;
    snprintf(dir, size, "%s", env);
  } else if (plugin_dir[0]) snprintf(dir, size, "%s", plugin_dir);
  else {
    snprintf(dir, size, ".");
    if (dladdr((void *)amp__devices, &info) && info.dli_fname) {
      const char *slash = strrchr(info.dli_fname, '/');
      if (slash) snprintf(dir, size, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
    }
  }
  for (size_t k = strlen(dir); k > 1 && dir[k - 1] == '/'; k--) dir[k - 1] = 0;
  return dir;
}

/* What plug-ins stand on is C++ that throws, crashes or ends the process where memory lacks while it is being
** loaded, in the loader's frames, where nothing can be caught: so there must be room for all of that first. */
static bool room_to_load(void)
{
  const size_t n = (size_t)128 << 20;
  void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, n);
  return true;
}

/* An exception of a library's initialiser would leave the loader's mutex taken, wherever it is caught. Where operator
** new may throw, because memory is limited or because it is not libstdc++'s, a child that shares nothing tries first;
** what ends it there is told. */
static bool may_throw(void)
{
#if defined(__SANITIZE_ADDRESS__)
  return false; /* its operator new ends the process */
#endif
  struct rlimit l;
  const int which[2] = { RLIMIT_AS, RLIMIT_DATA };
  for (int i = 0; i < 2; i++)
    if (getrlimit(which[i], &l) == 0 && l.rlim_cur != RLIM_INFINITY) return true;
  Dl_info info;
  void *new = dlsym(RTLD_DEFAULT, "_Znwm");
  return new &&dladdr(new, &info) && info.dli_fname &&strstr(info.dli_fname, "libstdc++") == NULL;
}

static void *try_in_thread(void *path)
{
  _exit(dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL);
  return NULL;
}

/* Does loading path end well, or with an error that dlopen tells? */
static bool survives(const char *path)
{
  int status = 0;
  if (!may_throw()) return true;
  pid_t pid = fork();
  if (pid < 0) return true;
  if (pid == 0) {
    pthread_t t;
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none);
    for (int s = 1; s < 32; s++) (void)signal(s, SIG_DFL);
    (void)close(2); /* what is thrown in a thread of its own ends the process, which the runtime would say */
    if (pthread_create(&t, NULL, try_in_thread, (void *)path) == 0) pthread_join(t, NULL);
    _exit(0);
  }
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return true; /* another wait has taken notice of its end */
  return !WIFSIGNALED(status);
}

/* Every message stands in plugin->info. */
static void load(plugin *plugin)
{
  char dir[1024], path[1200];
  const char *off = plugin->variable ? getenv(plugin->variable) : NULL;
  if (off && strcmp(off, "0") == 0) {
    snprintf(plugin->info, sizeof plugin->info, "switched off by %s=0", plugin->variable);
    return;
  }
  bool found = false;
  for (int i = 0; i < 2 && !found; i++) {
    if (folder(i, dir, sizeof dir) == NULL) continue;
    snprintf(path, sizeof path, "%s/libamp_%s.so", dir, plugin->name);
    found = access(path, F_OK) == 0;
  }
  if (!found) {
    snprintf(plugin->info, sizeof plugin->info, "its plug-in libamp_%s.so is not in %.400s", plugin->name, dir);
    return;
  }
  if (!room_to_load()) {
    snprintf(plugin->info, sizeof plugin->info,
             "not loaded: it takes up to 128 MiB of address space, which are not there (ulimit -v)");
    return;
  }
  if (plugin != &plugins[1] && !survives(path)) {
    snprintf(plugin->info, sizeof plugin->info,
             "not loaded: its libraries' initialisers fail here (memory is limited, or operator new is another's)");
    return;
  }
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (lib == NULL) {
    const char *why = dlerror();
    snprintf(plugin->info, sizeof plugin->info, "not loaded: %.480s", why ? why : path);
    return;
  }
  amp_plugin_init_fn init;
  amp_plugin_collectives_fn together;
  const char *(*about)(void);
  *(void **)&init = dlsym(lib, "amp_plugin_init");
  *(void **)&together = dlsym(lib, "amp_plugin_collectives");
  *(void **)&about = dlsym(lib, "amp_plugin_version");
  const char *why = init || together ? NULL : "it is not a plug-in of amp (no amp_plugin_init)";
  if (init) why = init(table_hash, amp__devices);
  if (why == NULL && together && (plugin->together = together(amp__hooks.collectives)) == NULL)
    why = "it is of another version of amp";
  if (why) {
    snprintf(plugin->info, sizeof plugin->info, "%.240s refused: %.240s", path, why);
    dlclose(lib);
    return;
  }
  plugin->loaded = true;
  for (int i = 0; i < AMP_OP_COUNT; i++) /* those that call others call the right ones there, too */
    if (amp__devices[AMP_CUDA].kernel[i] && amp__row_is(&amp__ops[i], AMP_R_CALLS))
      amp__set_kernel(&amp__devices[AMP_CUDA], i, amp__devices[AMP_CPU].kernel[i]);
  if (deterministic && plugin == &plugins[1] && amp__devices[AMP_CUDA].set)
    amp__devices[AMP_CUDA].set("deterministic", 1);
  if (about) snprintf(plugin->info, sizeof plugin->info, "%.200s, %.300s", about(), path);
  else snprintf(plugin->info, sizeof plugin->info, "%.500s", path);
}

static plugin *find(const char *name)
{
  for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
    if (strcmp(plugins[i].name, name) == 0) return &plugins[i];
  return NULL;
}

/* Plain kernels first, then the plug-in's over them: it finds the plain ones to fall back to. */
static void load_cpu(plugin *plugin)
{
  amp_device_ops *cpu = &amp__devices[AMP_CPU];
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if (served(i)) amp__set_kernel(cpu, i, plain[i]);
  load(plugin);
  if (plugin->loaded && cpu->reason == NULL) cpu->reason = plugin->info;
}

const char *amp__plugin(const char *name)
{
  plugin *plugin = find(name);
  if (plugin == NULL) return "there is no plug-in of this name";
  if (__atomic_load_n(&plugin->tried, __ATOMIC_ACQUIRE)) return plugin->info;
  amp__lock(AMP_LOCK_PLUGINS);
  if (!plugin->tried) {
    amp__loading_here = true;
    if (plugin == &plugins[0]) load_cpu(plugin);
    else load(plugin);
    amp__loading_here = false;
    __atomic_store_n(&plugin->tried, true, __ATOMIC_RELEASE);
  }
  amp__unlock(AMP_LOCK_PLUGINS);
  return plugin->info;
}

/* Kernels that a load in the middle has put in their places are whole. */
static void plugins_abandon(void)
{
  for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++) {
    plugin *plugin = &plugins[i];
    if (plugin->tried) continue;
    snprintf(plugin->info, sizeof plugin->info,
             "not loaded: another thread was loading a plug-in when this process was forked");
    plugin->tried = true;
  }
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if (amp__kernel(AMP_CPU, i) == first_use) amp__set_kernel(&amp__devices[AMP_CPU], i, plain[i]);
}

/* A plug-in that has not been asked for is not looked for any more. */
void amp__plugin_never(const char *name)
{
  plugin *plugin = find(name);
  if (plugin) __atomic_store_n(&plugin->tried, true, __ATOMIC_RELEASE);
}

const char *amp_plugin_info(const char *name) { return amp__plugin(name); }

const amp_collectives *amp__collectives(const char *name, const char **why)
{
  *why = amp__plugin(name);
  const plugin *plugin = find(name);
  return plugin && plugin->loaded ? plugin->together : NULL;
}

/* -- The CPU's table ------------------------------------------------------------- */

static int first_use(amp_call *call)
{
  amp__plugin("onednn");
  amp_kernel_fn fn = amp__kernel(AMP_CPU, call->id);
  return fn ? fn(call) : amp__fail(AMP_E_UNSUPPORTED, "no kernel for device cpu");
}

void amp__devices_install(const amp_kernel_fn *kernels, uint64_t hash)
{
  amp_device_ops *cpu = &amp__devices[AMP_CPU];
  plain = kernels;
  table_hash = hash;
  amp__hooks.plugins_abandon = plugins_abandon;
  memcpy(cpu->kernel, plain, sizeof *plain * AMP_OP_COUNT);
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if (served(i)) cpu->kernel[i] = first_use;
  cpu->count = 1;
  cpu->core = &core;
  cpu->reason = "plain C kernels";
  cpu->copy = cpu_copy;
  cpu->sync = cpu_sync;
  cpu->threads = amp__threads;
}

/* -- Devices ------------------------------------------------------------------------ */

int amp_device_available(int device)
{
  if (device < 0 || device >= AMP_DEVICE_COUNT) return 0;
  if (device == AMP_CUDA) amp__plugin("cuda");
  return amp__devices[device].count;
}

const char *amp_device_reason(int device)
{
  if (device < 0 || device >= AMP_DEVICE_COUNT) return "there is no such device";
  amp_device_available(device);
  if (amp__devices[device].reason) return amp__devices[device].reason;
  return device == AMP_CUDA ? amp__plugin("cuda") : "";
}

static int absent(int device, int index)
{
  return amp__fail(AMP_E_DEVICE, "device %s:%d is not there: %s", amp_device_name(device), index + 1,
                   amp_device_reason(device));
}

int amp_device_get_properties(amp_state *state, int device, int index, amp_device_properties *p)
{
  AMP_ENTER(state);
  if (device == AMP_CPU || index < 0 || index >= amp_device_available(device)) return absent(device, index);
  if (!amp__devices[device].properties)
    return amp__fail(AMP_E_UNSUPPORTED, "device %s does not tell its properties", amp_device_name(device));
  return amp__devices[device].properties(index, p);
}

int amp_device_set(amp_state *state, int device, const char *name, int value)
{
  AMP_ENTER(state);
  if (amp_device_available(device) == 0) return absent(device, 0);
  int was = amp__devices[device].set ? amp__devices[device].set(name, value) : -1;
  return was >= 0 ? was : amp__fail(AMP_E_ARGUMENT, "device %s has no switch '%s'", amp_device_name(device), name);
}

int amp_use_deterministic(int on)
{
  amp__lock(AMP_LOCK_PLUGINS);
  int was = deterministic;
  if (on >= 0) {
    deterministic = on != 0;
    for (int device = 0; device < AMP_DEVICE_COUNT; device++)
      if (amp__devices[device].set) amp__devices[device].set("deterministic", deterministic);
  }
  amp__unlock(AMP_LOCK_PLUGINS);
  return was;
}

int amp_device_memory(amp_state *state, int device, int index, int64_t *free_bytes, int64_t *total)
{
  size_t unused = 0, all = 0;
  AMP_ENTER(state);
  if (index < 0 || index >= amp_device_available(device)) return absent(device, index);
  if (!amp__devices[device].memory)
    return amp__fail(AMP_E_UNSUPPORTED, "device %s does not say how much memory it has", amp_device_name(device));
  int status = amp__devices[device].memory(index, &unused, &all);
  *free_bytes = (int64_t)unused;
  *total = (int64_t)all;
  return status;
}

const char *amp_device_library(int device, const char *name)
{
  if (amp_device_available(device) == 0) return amp_device_reason(device);
  const char *text = amp__devices[device].version_of ? amp__devices[device].version_of(name) : NULL;
  return text ? text : "not used by this device";
}

int amp_synchronize(amp_state *state, int device, int index)
{
  AMP_ENTER(state);
  if (index < 0 || index >= amp_device_available(device)) return absent(device, index);
  state->host_waits++;
  return amp__devices[device].sync(index);
}
