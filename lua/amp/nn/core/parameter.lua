--- nn.Parameter, by PyTorch's name.
local amp = require 'amp'
local options = require 'amp.options'
local raise = require('amp.error').throw

--- A tensor that requires grad and is registered by the module that it is assigned to.
-- It shares t's memory and has no history. Any tensor that requires grad is registered; this is PyTorch's word for it.
-- @tparam Tensor t a float tensor
-- @tparam ?boolean|table requires_grad default true; or {requires_grad}
-- @treturn Tensor
-- @usage self.scale = nn.Parameter(amp.ones(64))
return function(t, requires_grad)
  local op = 'nn.Parameter'
  if not amp.is_tensor(t) then raise(op, 'a tensor expected, as in nn.Parameter(amp.ones(64)), got %s', require('amp.util').show(t)) end
  if not t:is_floating_point() then raise(op, 'a float tensor expected, got %s; t:float() converts', t.dtype) end
  if type(requires_grad) == 'table' then requires_grad = options.read(op, requires_grad, {'requires_grad'}).requires_grad end
  if requires_grad == nil then requires_grad = true end
  local p = t:detach()
  p.requires_grad = options.boolean(op, 'requires_grad', requires_grad)
  return p
end
