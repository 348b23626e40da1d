/*
** cuda_compile.c: text to machine code by NVRTC, which is opened when the first text comes, and the folder that
** keeps what it made: $XDG_CACHE_HOME/amp, else ~/.cache/amp.
**
** A file there has the name of what it was made of: text, what that includes, compiler, card. It is written beside
** its place and moved there, so that no other process sees half of it; one that is damaged, or another user's,
** counts as not there and is replaced.
*/
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cuda_chain.h"

/* -- NVRTC ------------------------------------------------------------------------- */

typedef struct nvrtc_program *nvrtc_program;
enum { NVRTC_FINE = 0, NVRTC_MOST = 128 /* architectures that it may know */ };

#define FUNCTIONS(X)                                                                                             \
  X(Version, (int *, int *))                                                                                     \
  X(GetNumSupportedArchs, (int *))                                                                               \
  X(GetSupportedArchs, (int *))                                                                                  \
  X(CreateProgram, (nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *)) \
  X(DestroyProgram, (nvrtc_program *))                                                                           \
  X(CompileProgram, (nvrtc_program, int, const char *const *))                                                   \
  X(GetProgramLogSize, (nvrtc_program, size_t *))                                                                \
  X(GetProgramLog, (nvrtc_program, char *))                                                                      \
  X(GetCUBINSize, (nvrtc_program, size_t *))                                                                     \
  X(GetCUBIN, (nvrtc_program, char *))                                                                           \
  X(GetPTXSize, (nvrtc_program, size_t *))                                                                       \
  X(GetPTX, (nvrtc_program, char *))
#define MEMBER(name, arguments) int(*name) arguments;
static struct {
  FUNCTIONS(MEMBER)
} rtc;
static char info[256];
static int version, narch, arch[NVRTC_MOST];
static bool there;

static bool find_functions(void *lib)
{
#define FIND(f, arguments)                              \
  if (!(*(void **)&rtc.f = dlsym(lib, "nvrtc" #f))) {   \
    snprintf(info, sizeof info, "NVRTC has no %s", #f); \
    return false;                                       \
  }
  FUNCTIONS(FIND)
  return true;
}

static void open_library(void)
{
  char name[64];
  int major = 0, minor = 0;
  snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
  void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = dlopen("libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    snprintf(info, sizeof info,
             "%s is not found (install NVRTC, a part of the CUDA toolkit, or name its folder in LD_LIBRARY_PATH)",
             name);
    return;
  }
  if (!find_functions(lib)) return;
  if (rtc.Version(&major, &minor) != NVRTC_FINE || rtc.GetNumSupportedArchs(&narch) != NVRTC_FINE || narch < 1
      || narch > NVRTC_MOST || rtc.GetSupportedArchs(arch) != NVRTC_FINE) {
    snprintf(info, sizeof info, "NVRTC does not say what it is");
    return;
  }
  version = major * 1000 + minor * 10;
  snprintf(info, sizeof info, "NVRTC %d.%d", major, minor);
  there = true;
}

static bool ready(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return there;
}

const char *amp__compile_info(void)
{
  ready();
  return info;
}

/* The architecture to compile for, and whether that is the card's own: else it is one that the driver translates. 0:
 * none */
static int target(int cc, bool *own)
{
  int best = 0;
  for (int i = 0; i < narch; i++)
    if (arch[i] <= cc && arch[i] > best) best = arch[i];
#ifdef AMP_EMULATED
  *own = false; /* there is no card to make machine code for */
#else
  *own = best == cc;
#endif
  return best;
}

/* What generated text may include under names of the standard library */
static const char *const stand_ins[][2] = {
  { "stdint.h", "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;\n"
                "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;\n"
                "typedef unsigned long uint64_t; typedef unsigned long uintptr_t;\n" },
  { "cfloat", "#define FLT_MAX 0x1.fffffep127f\n#define DBL_MAX 0x1.fffffffffffffp1023\n#define FLT_MIN 0x1p-126f\n"
              "#define DBL_MIN 0x1p-1022\n" },
  { "cmath", "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n" },
};
enum { STAND_INS = sizeof stand_ins / sizeof *stand_ins, INCLUDES = 32 };

static int includes(const char **names, const char **texts)
{
  int n = 0;
  for (; n < STAND_INS; n++) {
    names[n] = stand_ins[n][0];
    texts[n] = stand_ins[n][1];
  }
  for (int i = 0; amp__chain_texts[i][0] && n < INCLUDES; i++, n++) {
    names[n] = amp__chain_texts[i][0];
    texts[n] = amp__chain_texts[i][1];
  }
  return n;
}

static bool take(nvrtc_program p, bool own, amp_code *code)
{
  if ((own ? rtc.GetCUBINSize(p, &code->bytes) : rtc.GetPTXSize(p, &code->bytes)) != NVRTC_FINE || code->bytes == 0
      || (code->data = malloc(code->bytes)) == NULL)
    return false;
  if ((own ? rtc.GetCUBIN(p, code->data) : rtc.GetPTX(p, code->data)) == NVRTC_FINE) return true;
  free(code->data);
  return false;
}

/* The compiler's first words on what it could not do */
static void blame(nvrtc_program p, int status, char *why, size_t room)
{
  size_t n = 0;
  char *log = NULL;
  if (p && rtc.GetProgramLogSize(p, &n) == NVRTC_FINE && n > 1 && (log = malloc(n)) != NULL
      && rtc.GetProgramLog(p, log) == NVRTC_FINE)
    log[strcspn(log, "\n")] = 0;
  snprintf(why, room, "NVRTC could not compile it (status %d%s%.300s)", status, log ? ": " : "", log ? log : "");
  free(log);
}

/* Products and sums of two rows stay apart, as in the rows' own kernels */
static const char *const given[] = { "--std=c++17", "--fmad=false", "--disable-warnings" };
enum { OPTIONS = sizeof given / sizeof *given };

static bool compile(const char *text, int cc, amp_code *code, char *why, size_t room)
{
  const char *names[INCLUDES], *texts[INCLUDES];
  char architecture[48];
  bool own;
  int n = includes(names, texts), best = target(cc, &own);
  const char *options[1 + OPTIONS] = { architecture };
  nvrtc_program p = NULL;
  if (best == 0) {
    snprintf(why, room, "%s knows no code for compute capability %d.%d", info, cc / 10, cc % 10);
    return false;
  }
  snprintf(architecture, sizeof architecture, "--gpu-architecture=%s_%d", own ? "sm" : "compute", best);
  for (int i = 0; i < OPTIONS; i++) options[1 + i] = given[i];
  int status = rtc.CreateProgram(&p, text, "chain.cu", n, texts, names);
  if (status == NVRTC_FINE) status = rtc.CompileProgram(p, 1 + OPTIONS, options);
  bool done = status == NVRTC_FINE && take(p, own, code);
  if (!done) blame(p, status, why, room);
  if (p) rtc.DestroyProgram(&p);
  return done;
}

/* -- The folder ----------------------------------------------------------------------- */

typedef struct header {
  char magic[8];
  uint64_t key[2], bytes, sum;
} header;
static const char magic[8] = "ampcode";

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
  const unsigned char *p = data;
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
  return h ^ h >> 29;
}

static void key_of(const char *text, int cc, uint64_t key[2])
{
  static const uint64_t start[2] = { 14695981039346656037u, 0x9e3779b97f4a7c15u };
  for (int k = 0; k < 2; k++) {
    uint64_t h = mix(mix(start[k], &version, sizeof version), &cc, sizeof cc);
    for (int i = 0; i < OPTIONS; i++) h = mix(h, given[i], strlen(given[i]));
    for (int i = 0; i < STAND_INS; i++) h = mix(h, stand_ins[i][1], strlen(stand_ins[i][1]));
    for (int i = 0; amp__chain_texts[i][0]; i++) h = mix(h, amp__chain_texts[i][1], strlen(amp__chain_texts[i][1]));
    key[k] = mix(h, text, strlen(text));
  }
}

/* Folders of a path, as far as they are not there */
static bool make_folders(char *path)
{
  for (char *p = path + 1;; p++) {
    if (*p != '/' && *p != 0) continue;
    char was = *p;
    *p = 0;
    bool fine = mkdir(path, 0700) == 0 || errno == EEXIST;
    int reason = errno;
    *p = was;
    errno = reason;
    if (!fine) return false;
    if (was == 0) return true;
  }
}

enum { PATH = 1024 };
/* The file of a key; false: no folder is known */
static bool path_of(const uint64_t key[2], char path[PATH])
{
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  const char *folder = cache && cache[0] == '/' ? cache : home, *under = folder == home ? "/.cache" : "";
  if (folder == NULL || folder[0] != '/') return false;
  int n = snprintf(path, PATH, "%s%s/amp/%016llx%016llx.code", folder, under, (unsigned long long)key[0],
                   (unsigned long long)key[1]);
  return n > 0 && n < PATH - 40;
}

static bool read_all(int fd, void *to, size_t n)
{
  for (char *p = to; n > 0;) {
    ssize_t got = read(fd, p, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    n -= (size_t)got;
  }
  return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
  for (const char *p = from; n > 0;) {
    ssize_t put = write(fd, p, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    p += put;
    n -= (size_t)put;
  }
  return true;
}

static bool read_code(const char *path, const uint64_t key[2], amp_code *code)
{
  header h;
  struct stat s;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  code->data = NULL;
  if (fd < 0) return false;
  bool fine = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && read_all(fd, &h, sizeof h)
              && memcmp(h.magic, magic, sizeof magic) == 0 && memcmp(h.key, key, sizeof h.key) == 0 && h.bytes > 0
              && (uint64_t)s.st_size == sizeof h + h.bytes && (code->data = malloc(h.bytes)) != NULL
              && read_all(fd, code->data, h.bytes) && mix(0, code->data, h.bytes) == h.sum;
  close(fd);
  if (fine) code->bytes = h.bytes;
  else {
    free(code->data);
    code->data = NULL;
  }
  return fine;
}

static bool write_code(char path[PATH], const uint64_t key[2], const amp_code *code)
{
  static unsigned count;
  char beside[PATH + 40];
  header h = { .key = { key[0], key[1] }, .bytes = code->bytes, .sum = mix(0, code->data, code->bytes) };
  memcpy(h.magic, magic, sizeof magic);
  char *name = strrchr(path, '/');
  *name = 0;
  bool fine = make_folders(path);
  *name = '/';
  if (!fine) return false;
  snprintf(beside, sizeof beside, "%s.%ld.%u", path, (long)getpid(), __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
  int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  fine = write_all(fd, &h, sizeof h) && write_all(fd, code->data, code->bytes);
  int reason = errno;
  if (close(fd) != 0 && fine) {
    reason = errno;
    fine = false;
  }
  if (fine && rename(beside, path) == 0) return true;
  if (fine) reason = errno;
  unlink(beside);
  errno = reason;
  return false;
}

/* -- Both -------------------------------------------------------------------------------- */

static bool once(int *told) { return __atomic_exchange_n(told, 1, __ATOMIC_RELAXED) == 0; }

static void keep(const amp_code *code, const uint64_t key[2], char path[PATH], bool known, char *why, size_t room)
{
  static int told;
  if (known && write_code(path, key, code)) return;
  int reason = errno;
  if (!once(&told)) return;
  if (known) *strrchr(path, '/') = 0;
  snprintf(why, room,
           "what was compiled can't be kept in %s (%s), so every process compiles it again; XDG_CACHE_HOME "
           "names another folder",
           known ? path : "a folder", known ? strerror(reason) : "neither XDG_CACHE_HOME nor HOME names one");
}

bool amp__compile(const char *text, int cc, bool fresh, amp_code *code, char *why, size_t room)
{
  static int told;
  uint64_t key[2];
  char path[PATH];
  if (!ready()) {
    if (once(&told)) snprintf(why, room, "%s", info);
    return false;
  }
  key_of(text, cc, key);
  bool known = path_of(key, path);
  code->kept = known && !fresh && read_code(path, key, code);
  if (code->kept) return true;
  if (!compile(text, cc, code, why, room)) return false;
  keep(code, key, path, known, why, room);
  return true;
}
