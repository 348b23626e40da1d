/*
** amp_device.c: the table a device fills, and the plug-ins that fill it.
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
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "amp_linalg.h"
#include "cpu/cpu_isa.h"

#define AMP_FN(name) int amp__cpu_##name
AMP_FN(optim_step)(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound) AMP_SLOTFN;
AMP_FN(check_scale)(amp_tensor *t, const float *inv, float *found) AMP_SLOTFN;
AMP_FN(scale_update)(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker, double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook, const amp_scaler_options *o) AMP_SLOTFN;

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

static const amp_core_api core = {
  present, fail_text, amp__shape_str, amp__tensor_str, amp__tensor_make, amp__tensor_view, amp__free, amp__dispatch, amp__ops, amp__capture_bump
};

/* -- The CPU's kernels ------------------------------------------------------------ */

#define AMP_KERNEL_K(name) [AMP_OP_##name] = amp__cpu_##name,
#define AMP_KERNEL_N(name) [AMP_OP_##name] = amp__cpu_##name,
#define AMP_KERNEL_V(name)
#define AMP_KERNEL_C(name)
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) AMP_KERNEL_##kind(name)
static const amp_kernel_fn plain[AMP_OP_COUNT] = {
#include "amp_ops.def"
};
#undef AMP_OP

amp_device_ops amp__devices[AMP_DEVICE_COUNT] = {
  [AMP_CPU] = { .count = 1, .core = &core, .reason = "plain C kernels", .copy = cpu_copy, .sync = cpu_sync },
  [AMP_CUDA] = { .count = 0 }
};

/* Ops whose slots a CPU plug-in may take: loading it for one changes no other op's results. */
static const int served[] = {
  AMP_OP_matmul, AMP_OP_linear, AMP_OP_convolution, AMP_OP_convolution_input, AMP_OP_convolution_weight
};
enum { SERVED = sizeof served / sizeof *served };

/* -- Plug-ins ------------------------------------------------------------------ */

typedef struct plugin {
  const char *name;
  bool tried, loaded;
  char info[512];      /* version and path, or why not */
} plugin;

static plugin plugins[] = { { .name = "onednn" }, { .name = "cuda" }, { .name = "lapack" } };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int deterministic; /* what plug-ins are told when they are loaded; under `lock` */
static char plugin_dir[1024];

void amp_set_plugin_dir(const char *dir)
{
  pthread_mutex_lock(&lock);
  snprintf(plugin_dir, sizeof plugin_dir, "%s", dir ? dir : "");
  pthread_mutex_unlock(&lock);
}

/* The folders to look in, in order: AMP_PLUGIN_DIR, then the one that was set, else this library's own. */
static const char *folder(int which, char *dir, size_t n)
{
  const char *env = getenv("AMP_PLUGIN_DIR");
  Dl_info info;
  if (which == 0) {
    if (env == NULL || *env == 0) return NULL;
    snprintf(dir, n, "%s", env);
  } else if (plugin_dir[0]) snprintf(dir, n, "%s", plugin_dir);
  else {
    snprintf(dir, n, ".");
    if (dladdr((void *)amp__devices, &info) && info.dli_fname) {
      const char *slash = strrchr(info.dli_fname, '/');
      if (slash) snprintf(dir, n, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
    }
  }
  for (size_t k = strlen(dir); k > 1 && dir[k - 1] == '/'; k--) dir[k - 1] = 0;
  return dir;
}

/* What plug-ins stand on is C++ that throws, crashes or ends the process where memory lacks while it is being loaded, in the
** loader's frames, where nothing can be caught: so there must be room for all of that first. */
static bool room_to_load(void)
{
  const size_t n = (size_t)128 << 20;
  void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, n);
  return true;
}

/* Every message stands in p->info. */
static void load(plugin *p)
{
  char dir[1024], path[1200];
  const char *variable = strcmp(p->name, "onednn") == 0 ? "AMP_ONEDNN" : strcmp(p->name, "lapack") == 0 ? "AMP_LAPACK" : NULL;
  const char *off = variable ? getenv(variable) : NULL;
  if (off && strcmp(off, "0") == 0) {
    snprintf(p->info, sizeof p->info, "switched off by %s=0", variable);
    return;
  }
  bool there = false;
  for (int i = 0; i < 2 && !there; i++) {
    if (folder(i, dir, sizeof dir) == NULL) continue;
    snprintf(path, sizeof path, "%s/libamp_%s.so", dir, p->name);
    there = access(path, F_OK) == 0;
  }
  if (!there) {
    snprintf(p->info, sizeof p->info, "its plug-in libamp_%s.so is not in %.400s", p->name, dir);
    return;
  }
  if (!room_to_load()) {
    snprintf(p->info, sizeof p->info, "not loaded: it takes up to 128 MiB of address space, which are not there (ulimit -v)");
    return;
  }
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (lib == NULL) {
    const char *why = dlerror();
    snprintf(p->info, sizeof p->info, "not loaded: %.480s", why ? why : path);
    return;
  }
  amp_plugin_init_fn init;
  const char *(*about)(void);
  *(void **)&init = dlsym(lib, "amp_plugin_init");
  *(void **)&about = dlsym(lib, "amp_plugin_version");
  const char *why = init ? init(amp_table_hash(), amp__devices) : "it is not a plug-in of amp (no amp_plugin_init)";
  if (why) {
    snprintf(p->info, sizeof p->info, "%.240s refused: %.240s", path, why);
    dlclose(lib);
    return;
  }
  p->loaded = true;
  if (deterministic && p == &plugins[1] && amp__devices[AMP_CUDA].set) amp__devices[AMP_CUDA].set("deterministic", 1);
  if (about) snprintf(p->info, sizeof p->info, "%.200s, %.300s", about(), path);
  else snprintf(p->info, sizeof p->info, "%.500s", path);
}

static plugin *find(const char *name)
{
  for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
    if (strcmp(plugins[i].name, name) == 0) return &plugins[i];
  return NULL;
}

/* Plain kernels first, then the plug-in's over them: it finds the plain ones to fall back to. */
static void load_cpu(plugin *p)
{
  amp_device_ops *cpu = &amp__devices[AMP_CPU];
  for (int i = 0; i < SERVED; i++) amp__set_kernel(cpu, served[i], plain[served[i]]);
  load(p);
  if (p->loaded && cpu->reason == NULL) cpu->reason = p->info;
}

const char *amp__plugin(const char *name)
{
  plugin *p = find(name);
  if (p == NULL) return "there is no plug-in of this name";
  if (__atomic_load_n(&p->tried, __ATOMIC_ACQUIRE)) return p->info;
  pthread_mutex_lock(&lock);
  if (!p->tried) {
    if (p == &plugins[0]) load_cpu(p);
    else load(p);
    __atomic_store_n(&p->tried, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return p->info;
}

/* A plug-in that has not been asked for is not looked for any more. */
void amp__plugin_never(const char *name)
{
  plugin *p = find(name);
  if (p) __atomic_store_n(&p->tried, true, __ATOMIC_RELEASE);
}

const char *amp_plugin_info(const char *name)
{
  amp__devices_init();
  return amp__plugin(name);
}

/* -- The CPU's table ------------------------------------------------------------- */

static int first_use(amp_call *c)
{
  amp__plugin("onednn");
  amp_kernel_fn fn = amp__kernel(AMP_CPU, c->id);
  return fn ? fn(c) : amp__fail(AMP_E_UNSUPPORTED, "no kernel for device cpu");
}

static void init(void)
{
  amp_device_ops *cpu = &amp__devices[AMP_CPU];
  memcpy(cpu->kernel, plain, sizeof plain);
  for (int i = 0; i < SERVED; i++) cpu->kernel[served[i]] = first_use;
  cpu->threads = amp__threads;
  cpu->linalg = &amp__linalg_own;
  cpu->optim_step = amp__cpu_optim_step;
  cpu->check_scale = amp__cpu_check_scale;
  cpu->scale_update = amp__cpu_scale_update;
}

void amp__devices_init(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init);
}

/* -- Devices ------------------------------------------------------------------------ */

const char *amp_device_name(int device)
{
  static const char *const names[AMP_DEVICE_COUNT] = { "cpu", "cuda" };
  return device >= 0 && device < AMP_DEVICE_COUNT ? names[device] : "no device";
}

int amp_device_available(int device)
{
  if (device < 0 || device >= AMP_DEVICE_COUNT) return 0;
  amp__devices_init();
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
  return amp__fail(AMP_E_DEVICE, "device %s:%d is not there: %s", amp_device_name(device), index + 1, amp_device_reason(device));
}

int amp_device_get_properties(amp_state *S, int device, int index, amp_device_properties *p)
{
  AMP_ENTER(S);
  if (device == AMP_CPU || index < 0 || index >= amp_device_available(device)) return absent(device, index);
  if (!amp__devices[device].properties) return amp__fail(AMP_E_UNSUPPORTED, "device %s does not tell its properties", amp_device_name(device));
  return amp__devices[device].properties(index, p);
}

int amp_device_set(amp_state *S, int device, const char *name, int value)
{
  AMP_ENTER(S);
  if (amp_device_available(device) == 0) return absent(device, 0);
  int was = amp__devices[device].set ? amp__devices[device].set(name, value) : -1;
  return was >= 0 ? was : amp__fail(AMP_E_ARGUMENT, "device %s has no switch '%s'", amp_device_name(device), name);
}

int amp_use_deterministic(int on)
{
  pthread_mutex_lock(&lock);
  int was = deterministic;
  if (on >= 0) {
    deterministic = on != 0;
    for (int d = 0; d < AMP_DEVICE_COUNT; d++)
      if (amp__devices[d].set) amp__devices[d].set("deterministic", deterministic);
  }
  pthread_mutex_unlock(&lock);
  return was;
}

int amp_device_memory(amp_state *S, int device, int index, int64_t *free_bytes, int64_t *total)
{
  size_t unused = 0, all = 0;
  AMP_ENTER(S);
  if (index < 0 || index >= amp_device_available(device)) return absent(device, index);
  if (!amp__devices[device].memory) return amp__fail(AMP_E_UNSUPPORTED, "device %s does not say how much memory it has", amp_device_name(device));
  int rc = amp__devices[device].memory(index, &unused, &all);
  *free_bytes = (int64_t)unused;
  *total = (int64_t)all;
  return rc;
}

const char *amp_device_library(int device, const char *name)
{
  if (amp_device_available(device) == 0) return amp_device_reason(device);
  const char *text = amp__devices[device].version_of ? amp__devices[device].version_of(name) : NULL;
  return text ? text : "not used by this device";
}

int amp_synchronize(amp_state *S, int device, int index)
{
  AMP_ENTER(S);
  if (index < 0 || index >= amp_device_available(device))
    return absent(device, index);
  S->host_waits++;
  return amp__devices[device].sync(index);
}
