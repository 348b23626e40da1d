--- What specs of edge values share: results as flat lists, compared element by element with one relative tolerance.
local assert = require 'luassert'
local amp = require 'amp'

local M = {}

--- The numbers of a tensor, a number, or lists of them, in one list.
function M.flat(v, out)
  out = out or {}
  if amp.is_tensor(v) then v = v:detach():to('cpu'):to('float64'):tolist() end
  if type(v) ~= 'table' then out[#out + 1] = v return out end
  for _, x in ipairs(v) do M.flat(x, out) end
  return out
end

--- Equal, both NaN, or apart by at most tolerance * right + least.
function M.same(what, got, want, tolerance, least)
  local g, w = M.flat(got), M.flat(want)
  assert.equal(#w, #g, what .. ': elements')
  for i = 1, #w do
    local a, b = g[i], w[i]
    local near = math.abs(a - b) <= tolerance * math.abs(b) + (least or 0)
    if not (a == b or (a ~= a and b ~= b) or near) then error(('%s: element %d is %.9g, right is %.9g'):format(what, i, a, b), 3) end
  end
end

return M
