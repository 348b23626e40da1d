/* onednn_guard.cpp: oneDNN's calls with what they throw turned into a status (onednn_guard.h). */
#include <new>
#include "onednn_guard.h"

namespace {

template <auto fn> struct guarded;

template <class... A, dnnl_status_t (*fn)(A...)> struct guarded<fn> {
  static dnnl_status_t call(A... a)
  {
    try {
      return fn(a...);
    } catch (const std::bad_alloc &) {
      return dnnl_out_of_memory;
    } catch (...) {
      return dnnl_runtime_error;
    }
  }
};

} // namespace

#define AMP_DNNL_DEFINE(name)                         \
  extern const decltype(&dnnl_##name) guarded_##name; \
  const decltype(&dnnl_##name) guarded_##name = guarded<&dnnl_##name>::call;
extern "C" {
AMP_DNNL_CALLS(AMP_DNNL_DEFINE)
}
