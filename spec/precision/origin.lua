--- What specs of gradients' origin share: a leaf, a named optimizer, a call that is refused.
local amp = require 'amp'
local assert = require 'luassert'
local M = {}

function M.leaf(...) return amp.tensor({ ... }, { requires_grad = true }) end
function M.sgd(...) return amp.optim.SGD({ ... }, { lr = 0.5, name = 'mine' }) end
function M.refused(pattern, f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  assert.matches(pattern, tostring(e))
end

return M
