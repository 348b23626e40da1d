--- The order in which coroutines that are alive were resumed.
-- No interface tells who resumed whom. Of coroutines of which each was resumed by one before it, each has its frame further down
-- the processor's stack.
-- @module amp.core.resumed
local ffi = require 'ffi'

local words_t = ffi.typeof 'const uint64_t *'

--- Gives a function that sorts n groups (amp.region) of coroutines that are alive, and beside them the coroutines, in the order
-- in which these were resumed: several may have been resumed unseen. Where the main thread runs inside a callback of a host's,
-- which is so where it is not the first, all is left as it is.
-- @tparam ?number frame which word of a coroutine points to its frame; nil: nothing is sorted
-- @param main what stands for the main thread
-- @treturn function (groups, coroutines, n)
return function(frame, main)
  local function height(g) return tonumber(ffi.cast(words_t, g.address)[frame]) end

  return function(list, of, n)
    local first = of[1] == main and 2 or 1
    if not frame or n <= first then return end
    for i = first, n do
      if of[i] == main then return end
    end
    for i = first + 1, n do
      local g, c, k = list[i], of[i], i
      local h = height(g)
      while k > first and height(list[k - 1]) < h do
        list[k], of[k] = list[k - 1], of[k - 1]
        k = k - 1
      end
      list[k], of[k] = g, c
    end
  end
end
