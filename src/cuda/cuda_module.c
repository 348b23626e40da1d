/*
** cuda_module.c: compiled code on a card, by functions of the driver, which is opened here by itself: the runtime
** that is linked in has none for code that comes as bytes.
*/
#include "cuda_chain.h"

#ifndef AMP_EMULATED
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct amp_module {
  CUmodule module;
  CUfunction kernel[2];
};

#define FUNCTIONS(X) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel) X(cuGetErrorName)
#define MEMBER(name) __typeof__(name) *name##_;
static struct {
  FUNCTIONS(MEMBER)
} driver;
static bool there;

static void open_driver(void)
{
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return;
#define FIND(f) \
  if (!(*(void **)&driver.f##_ = dlsym(lib, #f))) return;
  FUNCTIONS(FIND)
  there = true;
}

static const char *name_of(CUresult r)
{
  const char *name = NULL;
  return driver.cuGetErrorName_(r, &name) == CUDA_SUCCESS && name ? name : "unknown";
}

amp_module *amp__module_load(const amp_code *code, const char *text, char *why, size_t room)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static const char *const kernels[2] = { "amp_chain_wide_kernel", "amp_chain_any_kernel" };
  amp_module *m;
  (void)text;
  pthread_once(&once, open_driver);
  if (!there || (m = malloc(sizeof *m)) == NULL) return NULL;
  CUresult r = driver.cuModuleLoadData_(&m->module, code->data);
  if (r == CUDA_SUCCESS) {
    for (int k = 0; k < 2 && r == CUDA_SUCCESS; k++)
      r = driver.cuModuleGetFunction_(&m->kernel[k], m->module, kernels[k]);
    if (r == CUDA_SUCCESS) return m;
    AMP_UNREAD(driver.cuModuleUnload_(m->module));
  }
  snprintf(why, room, "the driver does not load what NVRTC %s (%s)", code->kept ? "compiled earlier" : "compiled",
           name_of(r));
  free(m);
  return NULL;
}

int amp__module_launch(amp_module *m, int kernel, unsigned grid, unsigned block, void *const *arguments,
                       const size_t *sizes, int n)
{
  (void)sizes;
  (void)n;
  CUresult r = driver.cuLaunchKernel_(m->kernel[kernel], grid, 1, 1, block, 1, 1, 0, (CUstream)amp__cuda_stream(),
                                      (void **)(intptr_t)arguments, NULL);
  return r == CUDA_SUCCESS ? 0 : amp__fail(AMP_E_DEVICE, "a generated kernel was not launched: %s", name_of(r));
}
#endif
