/*
** compile.cpp: generated kernels in the emulator: the same text, with the same texts that it includes, compiled by the
** host's compiler to a library. A thread of a launch calls it with its place.
*/
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>
#include "../../../src/cuda/cuda_chain.h"

struct amp_module {
  void (*thread)(int kernel, const unsigned *place, void *const *arguments);
};

static const char ending[] = "\nuint3 threadIdx, blockIdx;\ndim3 blockDim, gridDim;\nextern \"C\" {\n"
                             "double (*emu_erfinv)(double);\n"
                             "void emu_thread(int kernel, const unsigned *place, void *const *a)\n{\n"
                             "  threadIdx.x = place[0];\n  blockIdx.x = place[1];\n  blockDim.x = place[2];\n"
                             "  gridDim.x = place[3];\n"
                             "  (kernel ? amp_chain_any_kernel : amp_chain_wide_kernel)(*(const chain::places *)a[0], "
                             "*(const chain::numbers *)a[1], *(const chain::steps *)a[2]);\n}\n}\n"
                             "double erfinv(double x) { return emu_erfinv(x); }\n";

static bool write_text(const std::string &path, const std::string &text)
{
  FILE *f = fopen(path.c_str(), "w");
  if (!f) return false;
  bool fine = fwrite(text.data(), 1, text.size(), f) == text.size();
  return fclose(f) == 0 && fine;
}

/* A folder with what texts include, gone when the process ends */
static std::string folder;
static void remove_folder(void)
{
  if (system(("rm -rf '" + folder + "'").c_str()) != 0) perror("amp: emulator");
}
static bool make_folder(void)
{
  char name[] = "/tmp/amp_emulated_XXXXXX";
  if (!folder.empty()) return true;
  if (!mkdtemp(name)) return false;
  folder = name;
  atexit(remove_folder);
  for (int i = 0; amp__chain_texts[i][0]; i++) {
    std::string path = folder + "/" + amp__chain_texts[i][0];
    size_t slash = path.rfind('/');
    if (system(("mkdir -p '" + path.substr(0, slash) + "'").c_str()) != 0 || !write_text(path, amp__chain_texts[i][1]))
      return false;
  }
  return true;
}

#define COMPILE EMU_COMPILER " -std=gnu++17 -O1 -fno-math-errno -fPIC -w -DAMP_EMULATED -I'" EMU_HEADERS "' -I'"

/* What comes before a text's own lines is the same in all of them: a header, which is compiled before the first. */
static std::string with_header(const std::string &text)
{
  static std::string head;
  static const char last[] = "#include \"elementwise/chain.cuh\"\n";
  size_t at = text.find(last);
  if (at == std::string::npos) return text;
  at += sizeof last - 1;
  if (head.empty()) {
    head = text.substr(0, at);
    std::string command
        = COMPILE + folder + "' -x c++-header -o '" + folder + "/head.h.gch' '" + folder + "/head.h' >&2";
    if (!write_text(folder + "/head.h", head) || system(command.c_str()) != 0) return text;
  }
  return text.compare(0, at, head) == 0 ? "#include \"head.h\"\n" + text.substr(at) : text;
}

extern "C" amp_module *amp__module_load(const amp_code *code, const char *text, char *why, size_t room)
{
  static std::mutex lock;
  static int count;
  std::lock_guard<std::mutex> guard(lock);
  (void)code;
  if (!make_folder()) return NULL;
  std::string name = folder + "/chain" + std::to_string(count++);
  if (!write_text(name + ".cpp", with_header(text) + ending)) return NULL;
  std::string command = COMPILE + folder + "' -shared -o '" + name + ".so' '" + name + ".cpp' >&2";
  void *lib = system(command.c_str()) == 0 ? dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL) : NULL;
  void *thread = lib ? dlsym(lib, "emu_thread") : NULL;
  if (!thread) {
    snprintf(why, room, "the host's compiler does not compile it");
    return NULL;
  }
  *(double (**)(double))dlsym(lib, "emu_erfinv") = erfinv;
  amp_module *m = new amp_module;
  *(void **)&m->thread = thread;
  return m;
}

extern "C" int amp__module_launch(amp_module *m, int kernel, unsigned grid, unsigned block, void *const *arguments,
                                  const size_t *sizes, int n)
{
  std::vector<std::string> copies; /* longer than what a string has inside, so aligned as malloc does */
  for (int i = 0; i < n; i++) copies.emplace_back((const char *)arguments[i], sizes[i]);
  emu_name("amp_chain");
  emu_launch(
      [m, kernel, copies] {
        void *a[3];
        for (size_t i = 0; i < copies.size(); i++) a[i] = (void *)copies[i].data();
        const unsigned place[4] = { threadIdx.x, blockIdx.x, blockDim.x, gridDim.x };
        m->thread(kernel, place, a);
      },
      dim3(grid), dim3(block), 0, amp__cuda_stream());
  return 0;
}
