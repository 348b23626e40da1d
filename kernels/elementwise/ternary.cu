/*
** ternary.cu: elementwise kernels of three tensors: addcmul, addcdiv, lerp. A launch is one of elementwise.cuh's two
** kernels: 8 elements of each operand in a thread's registers, 16 bytes moved an element in float32; memory bounds it.
*/
#include "elementwise/elementwise.cuh"
#include "elementwise/ternary_rows.cuh"

namespace {

using namespace ternary_text;

template <int OP> static int run(amp_call *c, double value)
{
  int cls = amp_ew_class(c->out[0]->dtype, c->in, 3);
  three<OP> f = { value, 0 };
  if (cls == AMP_EW_I64) {
    if (OP != AMP_OP_addcmul) cls = AMP_EW_F32;
    else {
      whole_three g = { (int64_t)value };
      if ((double)g.value != value)
        return amp__fail(AMP_E_VALUE, "value is %.14g, integer tensors need an integral one", value);
      return amp_ew_run<int64_t, int64_t, 3>(c->out[0], c->in, g);
    }
  }
  return cls == AMP_EW_F64 ? amp_ew_run<double, double, 3>(c->out[0], c->in, f)
                           : amp_ew_run<float, float, 3>(c->out[0], c->in, f);
}

} // namespace

extern "C" {

int amp__cuda_addcmul(amp_call *c) { return run<AMP_OP_addcmul>(c, AMP_ARGS(c, addcmul)->value); }
int amp__cuda_addcdiv(amp_call *c) { return run<AMP_OP_addcdiv>(c, AMP_ARGS(c, addcdiv)->value); }
int amp__cuda_lerp(amp_call *c) { return run<AMP_OP_lerp>(c, 0); }
}
