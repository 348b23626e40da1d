--- Random choices that are the same on every machine.
local M = {}
local state

function M.draw(n) -- 1..n
  state = (state * 48271) % 2147483647
  return 1 + math.floor(state / 2147483647 * n)
end
function M.start(seed)
  state = (seed * 7919 + 12345) % 2147483646 + 1
  for _ = 1, 3 do M.draw(2) end
end
function M.chance(percent) return M.draw(100) <= percent end
function M.pick(list) return list[M.draw(#list)] end

return M
