--- Tensors that share memory: the stretches of storages that they cover, each written once.
local ffi = require 'ffi'

local M = {}

--- Stretch of its storage that a tensor covers, in elements.
function M.extent(t)
  local d = t.ptr_
  local first = tonumber(d.offset)
  local last = first
  for i = 0, d.ndim - 1 do last = last + (tonumber(d.size[i]) - 1) * tonumber(d.stride[i]) end
  return first, last
end

local function address(t) return tonumber(ffi.cast('uintptr_t', t.ptr_.storage)) end

--- Group tensors into segments: {dtype, first, last, storage, members}; those of no elements have count = 0.
function M.of(tensors)
  local spans, list = {}, {}
  for i, t in ipairs(tensors) do
    if t:numel() == 0 then
      list[#list + 1] = {dtype = t.dtype, count = 0, members = {i}}
    else
      local first, last = M.extent(t)
      spans[#spans + 1] = {at = i, storage = address(t), first = first, last = last}
    end
  end
  table.sort(spans, function(a, b)
    if a.storage ~= b.storage then return a.storage < b.storage end
    if a.first ~= b.first then return a.first < b.first end
    return a.at < b.at
  end)
  local open
  for _, s in ipairs(spans) do
    if open and open.storage == s.storage and s.first <= open.last then
      open.last = math.max(open.last, s.last)
      open.members[#open.members + 1] = s.at
    else
      open = {storage = s.storage, first = s.first, last = s.last, dtype = tensors[s.at].dtype, members = {s.at}}
      list[#list + 1] = open
    end
  end
  for _, s in ipairs(list) do table.sort(s.members) end
  table.sort(list, function(a, b) return a.members[1] < b.members[1] end)
  return list
end

--- The elements of a segment, as a vector.
function M.source(s, tensors) return tensors[s.members[1]]:as_strided({s.last - s.first + 1}, {1}, s.first) end

return M
