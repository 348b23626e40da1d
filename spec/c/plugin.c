/*
** plugin.c: two plug-ins for test_device.c. As libamp_onednn.so it takes matmul
** and passes every call on to the kernel it found there, counting; as
** libamp_cuda.so (AMP_TEST_REFUSE) it takes its table for another one.
*/
#include "library/table_hash.h"

#ifdef AMP_TEST_REFUSE
#define OTHER 1
#else
#define OTHER 0
#endif

AMP_API const char *amp_plugin_init(uint64_t hash, amp_device_ops *devices);
AMP_API const char *amp_plugin_version(void);
AMP_API int amp_test_calls;

int amp_test_calls;
static amp_kernel_fn before;

static int matmul(amp_call *c)
{
  amp_test_calls++;
  return before(c);
}

const char *amp_plugin_version(void) { return "fake 1.2"; }

const char *amp_plugin_init(uint64_t hash, amp_device_ops *devices)
{
  if (hash != amp__table_hash() + OTHER) return "it was built for another version of amp";
  before = devices[AMP_CPU].kernel[AMP_OP_matmul];
  devices[AMP_CPU].kernel[AMP_OP_matmul] = matmul;
  return NULL;
}
