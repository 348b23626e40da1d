/*
** test_device.c: plug-ins: loaded at the first use of an op they serve and not
** before, laid over the plain kernels, refused with a sentence when their table
** differs, and named with version and path.
*/
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "check.h"

static amp_tensor *ones(void)
{
  int64_t size[2] = { 3, 3 };
  amp_tensor *t = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 2, size);
  for (int i = 0; i < 9; i++) AMP_DATA(float, t)[i] = 1;
  return t;
}

int main(void)
{
  unsetenv("AMP_ONEDNN");
  setenv("AMP_PLUGIN_DIR", "/nowhere", 1);
  amp_set_plugin_dir(AMP_TEST_PLUGINS); /* comes first */
  amp_state *S = amp_state_new();
  amp_ref a = { NULL }, sum = { NULL }, product = { NULL };
  AMP_ENTER(S);
  a.t = ones();
  OK(amp_op2(S, AMP_OP_add, &sum, &a, &a));
  CHECK(dlopen(AMP_TEST_PLUGINS "/libamp_onednn.so", RTLD_NOW | RTLD_NOLOAD) == NULL);
  for (int i = 1; i <= 3; i++) {
    OK(amp_op2(S, AMP_OP_matmul, &product, &a, &sum));
    CHECK(AMP_DATA(float, product.t)[8] == 6);
    amp_release(&product);
    void *lib = dlopen(AMP_TEST_PLUGINS "/libamp_onednn.so", RTLD_NOW | RTLD_NOLOAD);
    int *calls = lib ? dlsym(lib, "amp_test_calls") : NULL;
    CHECK(calls && *calls == i);
    if (lib) dlclose(lib);
  }
  CHECK(strstr(amp_plugin_info("onednn"), "fake 1.2") && strstr(amp_plugin_info("onednn"), AMP_TEST_PLUGINS));
  CHECK(strstr(amp_plugin_info("cuda"), "refused: it was built for another version"));
  CHECK(amp_device_available(AMP_CUDA) == 0 && strstr(amp_device_reason(AMP_CUDA), "refused"));
  CHECK(strstr(amp_plugin_info("tpu"), "no plug-in"));
  amp_release(&a);
  amp_release(&sum);
  amp_state_free(S);
  return DONE();
}
