/*
** onednn_plugin.c: libamp_onednn.so. It takes the CPU's slots of matmul, linear
** and the convolutions, for float32 and bfloat16; whatever it can't do (other
** dtypes, odd layouts, tiny products) goes to the slot's kernel from before.
**
** A primitive is made once for a shape and kept, with its memory objects, in a
** table of the thread, so nothing is shared and a call only sets pointers. What
** the library keeps for all threads it touches when a primitive is made and when
** it runs for the first time: then one thread at a time, and no fork meanwhile.
** Operands are described by their own strides; where the primitive wants
** another layout, the data are moved before (or after) it, through scratch
** memory of the thread: by a reorder, or between layouts that onednn_layout.c
** knows by that. What oneDNN would only do by its reference loops is refused.
** Threads are as many as the core deems right. Signals wait while oneDNN runs.
**
**   onednn_product.c, onednn_conv.c   what a call is for oneDNN: a key and a problem
**   onednn_entry.c                    the table, making a primitive, running it
**   onednn2.c, onednn3.c              the two versions of oneDNN's API
*/
#include <stdio.h>
#include <stdlib.h>
#include "library/table_hash.h"
#include "cpu/isa.h"
#include "onednn_entry.h"

__attribute__((visibility("default"))) const char *amp_plugin_version(void)
{
  static char text[64];
  const dnnl_version_t *v = dnnl_version();
  snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return text;
}

/* AMP_CPU_ISA holds for oneDNN's kernels as for ours, unless its own variable says more. */
static void limit_instructions(void)
{
  int isa = amp__cpu_isa();
  if (getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA") || !getenv("AMP_CPU_ISA") || isa == AMP_ISA_AVX512)
    return;
  dnnl_set_max_cpu_isa(isa == AMP_ISA_AVX2 ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41);
}

__attribute__((visibility("default"))) const char *amp_plugin_init(uint64_t table_hash, amp_device_ops *devices)
{
  if (table_hash != amp__table_hash()) return "it was built for another version of amp";
  if (dnnl_version()->major != DNNL_VERSION_MAJOR) return "it was built for another version of oneDNN";
  limit_instructions();
  if (dnn_engine == NULL && dnnl_engine_create(&dnn_engine, dnnl_cpu, 0) != dnnl_success)
    return "oneDNN finds no CPU engine";
  if (!dnn_entries_start()) return "no thread key is left";
  amp_device_ops *cpu = &devices[AMP_CPU];
  dnn_core = cpu->core;
  dnn_core_threads = devices[AMP_CPU].threads;
  cpu->core->fork_guest(&dnn_shared);
  memcpy(dnn_plain, cpu->kernel, sizeof dnn_plain);
  amp__set_kernel(cpu, AMP_OP_linear, dnn_linear);
  amp__set_kernel(cpu, AMP_OP_matmul, dnn_matmul);
  amp__set_kernel(cpu, AMP_OP_convolution, dnn_convolution);
  amp__set_kernel(cpu, AMP_OP_convolution_input, dnn_convolution_input);
  amp__set_kernel(cpu, AMP_OP_convolution_weight, dnn_convolution_weight);
  return NULL;
}
