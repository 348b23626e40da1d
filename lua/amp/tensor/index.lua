--- Indexing: t[i], t[{i, {a, b}, {}, {a, b, step}, tensor, ...}], and assignment to each.
-- Numbers, ranges, `{}` and integer tensors of no dimensions (numbers, once they are read) compose views; other
-- tensors (integer or boolean) pick elements through the ops index and index_put. Everything counts from 1, negative places from the end,
-- `{a}` is the range a..a.
-- @module amp.tensor.index
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local ops = require 'amp.ops'
local types = require 'amp.types'
local util = require 'amp.util'
local ref_t = core.ref_t
local istype = ffi.istype
local band, bor = bit.band, bit.bor
local MASK = core.C.AMP_T_MASK

local M = {}

local BOOL = 9
local select_, slice = ops.get 'select', ops.get 'slice'

local function integral(v) return type(v) == 'number' and v % 1 == 0 end

-- A number: of a 64-bit integer, and of an integer tensor without dimensions, which on a GPU waits for it.
local function as_number(v)
  if type(v) ~= 'cdata' then return v end
  if not istype(ref_t, v) then return tonumber(v) end
  local p = v.ptr_
  if p ~= nil and p.ndim == 0 and p.dtype > 3 and p.dtype < BOOL then return v:item() end
  return v
end

local function out_of_range(i, d, size)
  err.throw_code('index', 'index', 'index %s is out of range for dimension %d, which has size %d (1..%d)', i, d, size, size)
end

local function place(i, d, size)
  i = as_number(i)
  if not integral(i) then
    err.throw_code('index', 'index', 'index %s for dimension %d must be an integer', util.show(i), d)
  end
  if i < -size or i > size or i == 0 then out_of_range(i, d, size) end
  return i < 0 and i + size + 1 or i
end

local function range_end(i, d, size, which)
  i = as_number(i)
  if not integral(i) then
    err.throw_code('index', 'index', '%s of the range for dimension %d must be an integer, got %s', which, d, util.show(i))
  end
  return i < 0 and i + size + 1 or i
end

-- {a, b, step} of dimension d into a view of v along dimension at.
local function range(v, at, r, d, size)
  local n = #r
  local flaw = util.flaw(r)
  if flaw then err.throw_code('index', 'index', 'the range for dimension %d must be {}, {a}, {a, b} or {a, b, step}: %s', d, flaw) end
  if n == 0 then return v end
  if n > 3 then
    err.throw_code('index', 'index', 'the range for dimension %d has %d elements; {}, {a}, {a, b} or {a, b, step} are known', d, n)
  end
  local a = range_end(r[1], d, size, 'the start')
  local b = n >= 2 and range_end(r[2], d, size, 'the end') or a
  local step = n == 3 and as_number(r[3]) or 1
  if not integral(step) or step < 1 then
    err.throw_code('index', 'index', 'the step of the range for dimension %d must be a positive integer, got %s%s', d, util.show(step),
      integral(step) and step < 0 and '; t:flip(d) reverses a dimension' or '')
  end
  if n == 1 then
    if a < 1 or a > size then out_of_range(r[1], d, size) end
  elseif a < 1 or b > size or b < a - 1 or a > size + 1 then
    if a > b and a >= 1 and b >= 0 and a <= size and b <= size then
      err.throw_code('index', 'index', 'the range %s..%s of dimension %d runs backward', r[1], r[2], d)
    end
    err.throw_code('index', 'index', 'the range %s..%s is out of range for dimension %d, which has size %d', r[1], r[2], d, size)
  end
  if core.C.amp_graph_recording(core.S) ~= 0 then -- a graph's size may be another: ends are as they were given
    return slice(v, at, as_number(r[1]), as_number(n >= 2 and r[2] or r[1]), step)
  end
  if a == 1 and b == size and step == 1 then return v end
  return slice(v, at, a, b, step)
end

--- Whether some tensors of bytes are masks: set by mark_mask.
M.byte_masks = false

--- Let a uint8 tensor pick elements as a bool does, and whatever is made of it and uint8: Torch7's ByteTensor. Others stay positions.
function M.mark_mask(t)
  if t.dtype == 'uint8' then
    M.byte_masks = true
    t.ptr_.flags = bor(t.ptr_.flags, MASK)
  end
  return t
end

local function with_masks(list)
  local out
  for i = 1, #list do
    local e = list[i]
    if istype(ref_t, e) and e.ptr_ ~= nil and band(e.ptr_.flags, MASK) ~= 0 then
      out = out or { unpack(list) }
      out[i] = ops.get 'ne'(e, 0)
    end
  end
  return out or list
end

--- Compose the view part of an index.
-- @treturn Tensor view
-- @treturn ?table index tensors still to apply
-- @treturn ?table the dimensions of view that they index, from 1
-- @treturn ?table those dimensions of the tensor itself, by the ones of view, where they differ
local function resolve(t, list)
  local v, at = t, 1 -- `at`: the next dimension of v; `d`: of t
  local d = 1
  local tensors, dims, own
  local nd = t:dim()
  local used = 0
  local flaw = util.flaw(list)
  if flaw then err.throw_code('index', 'index', 'the index: %s%s', flaw, flaw:find('nothing', 1, true) and '; {} is a whole dimension' or '') end
  for i = 1, #list do
    local e = list[i]
    used = used + (istype(ref_t, e) and e.ptr_ ~= nil and e.ptr_.dtype == BOOL and e.ptr_.ndim or 1)
  end
  if used > nd then
    err.throw_code('index', 'index', '%d indices are given for a tensor of %d dimension%s (%s)', used, nd, nd == 1 and '' or 's', t:size())
  end
  local p = t.ptr_
  for i = 1, #list do
    local e = as_number(list[i])
    if type(e) == 'number' then
      v = select_(v, at, place(e, d, tonumber(p.size[d - 1])))
      d = d + 1
    elseif istype(ref_t, e) then
      tensors, dims = tensors or {}, dims or {}
      local q = e.ptr_
      if at ~= d then own = own or {} end
      if own then own[at] = d end
      if q == nil then err.throw('index', 'index %d is a tensor that was freed', i) end
      if q.dtype == BOOL then
        local n = q.ndim
        if n == 0 then err.throw_code('index', 'index', 'index %d is a boolean scalar; a mask has the shape of the dimensions it picks from', i) end
        for k = 0, n - 1 do
          if q.size[k] ~= p.size[d - 1 + k] then
            err.throw_code('index', 'index', 'the mask at place %d has shape %s, but dimension %d of the tensor (%s) has size %d', i,
              e:size(), d + k, t:size(), tonumber(p.size[d - 1 + k]))
          end
        end
        local found = ops.get 'nonzero'(e)
        for k = 1, n do
          tensors[#tensors + 1] = select_(found, 2, k)
          dims[#dims + 1] = at
          at, d = at + 1, d + 1
        end
      else
        if types.has_gradient(q.dtype) then
          err.throw_code('dtype', 'index', 'an index tensor must be integer or bool, got %s at place %d; use :long()', e.dtype, i)
        end
        tensors[#tensors + 1] = e
        dims[#dims + 1] = at
        at, d = at + 1, d + 1
      end
    elseif type(e) == 'table' then
      v = range(v, at, e, d, tonumber(p.size[d - 1]))
      at, d = at + 1, d + 1
    else
      err.throw_code('index', 'index', 'index %d must be a number, a range {a, b} or a tensor, got %s', i, util.show(e))
    end
  end
  return v, tensors, dims, own
end

-- An op on elements of a view: where it fails, the error tells the dimensions of the tensor that was indexed.
local function told(own, op, ...)
  local ok, result = pcall(op, ...)
  if ok then return result end
  error(err.reworded(result, 'dimension (%d+)', function(k) return own[tonumber(k)] and 'dimension ' .. own[tonumber(k)] end), 0)
end

local function check_key(t, k)
  if type(t.ptr_) == 'nil' or t.ptr_ == nil then err.throw('index', 'the tensor was freed') end
  if type(k) == 'table' then return M.byte_masks and with_masks(k) or k end
  k = as_number(k)
  if istype(ref_t, k) then return M.byte_masks and with_masks { k } or { k } end
  if type(k) ~= 'number' then err.throw_code('index', 'index', 'a tensor is indexed by a number, a list or a tensor, got %s', util.show(k)) end
  return k
end

M.guard = nil -- while a graph is recorded: a check of what an index asks of sizes

--- t[k]
function M.get(t, k)
  local list = check_key(t, k)
  if M.guard then M.guard(t, list) end
  if type(list) == 'number' then
    local p = t.ptr_
    if p.ndim == 0 then err.throw_code('index', 'index', 'a scalar (0 dimensions) can not be indexed; t:item() gives its value') end
    return select_(t, 1, place(list, 1, tonumber(p.size[0])))
  end
  local v, tensors, dims, own = resolve(t, list)
  if own then return told(own, ops.get 'index', v, tensors, dims) end
  if tensors then return ops.get 'index'(v, tensors, dims) end
  if v == t then return ops.get 'alias'(t) end
  return v
end

local function value_tensor(t, value)
  if istype(ref_t, value) then return value end
  if type(value) == 'table' then return require('amp.tensor.create').tensor(value, { dtype = t.dtype, device = t.device }) end
  if type(value) == 'boolean' then return value and 1 or 0 end
  if istype('int64_t', value) or istype('uint64_t', value) then -- all its digits
    return require('amp.tensor.create').tensor(value, { dtype = t.dtype, device = t.device })
  end
  if type(value) == 'number' then return value end
  err.throw('index', 'a tensor, a number or a table is assigned to elements, got %s', util.show(value))
end

--- t[k] = value: broadcast, and cast to t's dtype
function M.set(t, k, value)
  local list = check_key(t, k)
  if M.guard then M.guard(t, list) end
  value = value_tensor(t, value)
  if type(list) == 'number' then list = { list } end
  -- one mask and one number: no positions are needed
  if #list == 1 and istype(ref_t, list[1]) and type(value) == 'number' and list[1].ptr_ ~= nil
    and list[1].ptr_.dtype == BOOL and list[1].ptr_.ndim == t.ptr_.ndim then
    ops.get 'masked_fill_'(t, list[1], value)
    return
  end
  local v, tensors, dims, own = resolve(t, list)
  if tensors then
    if type(value) == 'number' then
      value = require('amp.tensor.create').full({}, value, { dtype = t.dtype, device = t.device })
    elseif value.dtype ~= t.dtype then
      value = value:to(t.dtype)
    end
    if own then told(own, ops.get 'index_put_', v, tensors, value, nil, dims) else ops.get 'index_put_'(v, tensors, value, nil, dims) end
  elseif type(value) == 'number' then
    ops.get 'fill_'(v, value)
  else
    local nd = v.ptr_.ndim -- leading dimensions of size 1 may be more than the place has
    while value.ptr_ ~= nil and value.ptr_.ndim > nd and value.ptr_.size[0] == 1 do value = select_(value, 1, 1) end
    ops.get 'copy_'(v, value)
  end
end

return M
