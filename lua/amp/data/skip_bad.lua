--- The option skip_bad of data sets of pictures: one that cannot be read is left out, never silently.
local amp = require 'amp'

--- load(self, k, ...) for k = i; with self.skip_bad for the first of i, i + 1, … n, 1, … that can be read, with one warning a data set.
-- @return what load gave, and the k
return function(self, i, n, load, ...)
  if not self.skip_bad then return load(self, i, ...), i end
  local first
  for step = 0, n - 1 do
    local k = (i - 1 + step) % n + 1
    local ok, x = pcall(load, self, k, ...)
    if ok then return x, k end
    first = first or x
    if not self.warned then
      self.warned = true
      amp.warn(('%s: a picture is left out, the next one is taken: %s'):format(self.op, tostring(x)))
    end
  end
  error(first, 0)
end
