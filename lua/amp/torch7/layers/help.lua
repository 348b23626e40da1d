--- What the definitions of Torch7's layers share. A definition is a table:
--   init(self, ...)            sets the fields, under Torch7's names; its parameters are the constructor's arguments
--   compute(self, x, p, ctx)   the output from amp tensors; p: parameters and buffers by name, ctx.train: training mode.
--                              What is random is kept in ctx, so that computing once more gives the same
--   params(self)               sizes of the parameters by name, in a list of {name, sizes...}
-- The same definitions make modules of amp (torch7/nn.lua) and modules on Torch7's own tensors (torch7/own/module.lua).
local amp = require 'amp'
local raise = require('amp.error').throw

local M = {}

--- The dimension meant: negative from the end, moved by one where the input has a batch before its nInputDims.
function M.dimension(self, x, d)
  if d < 0 then return x:dim() + d + 1 end
  if self.nInputDims and x:dim() == self.nInputDims + 1 then return d + 1 end
  return d
end

--- f(x), x being a batch: one example of `dims - 1` dimensions is made a batch of one for it.
function M.batched(self, x, dims, f)
  local n = x:dim()
  if n == dims then return f(x) end
  if n ~= dims - 1 then raise(self.__name, 'an input of %d or %d dimensions expected, got %s', dims - 1, dims, tostring(x:size())) end
  local y = f(x:unsqueeze(1))
  return y:squeeze(1)
end

--- A table of tensors, or an error.
function M.list(self, t)
  if type(t) ~= 'table' or t[1] == nil then raise(self.__name, 'a list of tensors expected, got %s', amp.is_tensor(t) and 'one tensor' or type(t)) end
  return t
end

--- sqrt whose gradient at 0 is 0.
function M.safe_sqrt(x)
  local zero = x:eq(0)
  return x:masked_fill(zero, 1):sqrt():masked_fill(zero, 0)
end

--- Sizes given as numbers, a list, a torch.LongStorage or a tensor.
function M.sizes(...)
  local first = ...
  if type(first) == 'number' then return {...} end
  if amp.is_tensor(first) then return first:tolist() end
  if type(first) == 'userdata' or type(first) == 'table' and first.totable then return first:totable() end
  if type(first) == 'table' then return {unpack(first)} end
  return {...}
end

--- A number, or an error that names the argument.
function M.number(self, name, v, default, low, high)
  if v == nil then v = default end
  if type(v) ~= 'number' or v ~= v or low and v < low or high and v > high then
    raise(self.__name, '%s must be a number%s, got %s', name, low and high and (' from %g to %g'):format(low, high) or '', tostring(v))
  end
  return v
end

--- true, false or nothing.
function M.flag(self, name, v, default)
  if v == nil then return default end
  if type(v) ~= 'boolean' then raise(self.__name, '%s must be true or false, got %s', name, tostring(v)) end
  return v
end

return M
