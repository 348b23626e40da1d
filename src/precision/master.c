/*
** precision/master.c: float32 masters of a network's 16-bit parameters.
**
**   model (float16 leaf) --gradient--> master (float32 leaf) --> optimizer
**     ^                                                             |
**     +------------ the master's shadow, written in the step -------+
**
** The model's parameter *is* the shadow (precision/cast.c) of its master, so the fused
** step writes both in one pass. Where it did not (a step of the user's own, a
** master changed by hand), refreshing copies. A gradient goes over as it lies,
** in 16 bits: unscaling leaves its factor pending on the master's record, and the
** model keeps its own, scaled one. Which tensor is whose master, the caller knows.
*/
#include "dispatch/op_builder.h"
#include "precision/scale.h"
#include "autograd/tape.h"

static int check_pair(const amp_tensor *master, const amp_tensor *model, int i)
{
  if (!master || !model) return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "parameter %d was freed", i + 1);
  if (!amp__same_size(master, model) || master->device != model->device || master->device_index != model->device_index)
    return amp__fail_arg(AMP_E_STATE, i + 1,
                         "parameter %d is %s, its master %s: a network is moved before its masters are made", i + 1,
                         amp__tensor_str(model), amp__tensor_str(master));
  return 0;
}

static int give(amp_tensor *master, amp_tensor *model, int i)
{
  amp_grad *from = amp__grad_of(model);
  if (!from || from->master != AMP_MASTER_NONE) return 0;
  if (amp__grad_of(master))
    return amp__fail_arg(
        AMP_E_STATE, i + 1,
        "parameter %d (%s) of the model got a gradient outside of amp.scale_loss, beside the one that its "
        "float32 master has: call backward inside a block; gradients are changed in amp.master_params(opt)",
        i + 1, amp__tensor_str(model));
  amp_ag *ag = amp__ag(master);
  if (!ag) return amp__S->err.code;
  amp_tensor *value = from->value;
  bool own = value->dtype == master->dtype || from->visible; /* values that may be changed in place are not shared */
  if (!own) amp__retain(value);
  else if (!(value = amp__raw_clone(value))) return amp__S->err.code;
  if (from->factor) amp__retain(from->factor);
  ag->grad.value = value;
  ag->grad.factor = from->factor;
  ag->grad.visible = 0;
  amp__grad_from(&ag->grad, amp__grad_origin(from));
  amp__grad_scale_put(&ag->grad, amp__grad_scale(from));
  from->master = own ? AMP_MASTER_HAD : AMP_MASTER_HAS;
  return 0;
}

int amp_masters_give(amp_state *state, amp_tensor *const *master, amp_tensor *const *model, int count)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  int status = 0;
  for (int i = 0; i < count && !status; i++) status = check_pair(master[i], model[i], i);
  for (int i = 0; i < count && !status; i++) status = give(master[i], model[i], i);
  amp__plain_end(plain);
  return status;
}

static bool may_be_shadow(const amp_tensor *master, const amp_tensor *model)
{
  if (!amp__is_half(model->dtype) || master->dtype != AMP_FLOAT32 || !(model->flags & AMP_T_DENSE)) return false;
  for (int i = 0; i < model->ndim; i++)
    if (model->size[i] > 1 && model->stride[i] != master->stride[i]) return false;
  return true;
}

static int refresh(amp_tensor *master, amp_tensor *model)
{
  amp_ag *ag = amp__ag(master);
  if (!ag) return amp__S->err.code;
  if (ag->shadow == model && ag->shadow_version == amp__version(master)) return 0;
  amp_tensor *inputs[2] = { model, master };
  int status = amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
  if (status < 0 || !may_be_shadow(master, model)) return status;
  if (ag->shadow != model) {
    amp__shadow_drop(ag);
    amp__retain(model);
    ag->shadow = model;
  }
  ag->shadow_is_model = 1;
  ag->shadow_version = amp__version(master);
  ag->shadow_owned = 1;
  return 0;
}

int amp_masters_refresh(amp_state *state, amp_tensor *const *master, amp_tensor *const *model, int count)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  int status = 0;
  for (int i = 0; i < count && !status; i++) {
    status = check_pair(master[i], model[i], i);
    if (!status) status = refresh(master[i], model[i]);
    if (!status) amp__grad_clear(master[i]);
  }
  amp__plain_end(plain);
  return status;
}
