--- Tensor methods that are made of ops: conversion, copies, splitting, comparison.
-- Called once by amp.tensor with its module table.
-- @module amp.tensor.methods
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local options = require 'amp.options'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

return function(M)
  local methods = M.methods
  local self_check, dimension = M.self_check, M.dimension
  local cast, to_device, copy_ = ops.get 'cast', ops.get 'to_device', ops.get 'copy_'
  local cast_unsaturated = ops.get 'cast_unsaturated'

  -- -- Names of other libraries ------------------------------------------------------------

  methods.nelement = methods.numel
  methods.nElement = methods.numel
  methods.nDimension = methods.dim
  methods.ndimension = methods.dim

  -- -- Conversion ---------------------------------------------------------------------------

  local function convert(t, op, dtype, device, format, copy, async, saturate)
    local p = self_check(t, op)
    local o = t
    if device and device ~= p.device * 256 + p.device_index then
      local kind, index = math.floor(device / 256), device % 256
      o = async and call.make(op, C.amp_to_async, o, kind, index) or to_device(o, types.device_string(kind, index))
    end
    if dtype and dtype ~= p.dtype then o = (saturate == false and cast_unsaturated or cast)(o, types.dtype_name[dtype]) end
    if format then
      o = ops.get 'contiguous'(o, format)
    end
    if copy and o == t then o = ops.get 'clone'(t) end
    return o
  end

  --- Another dtype, device or layout; the tensor itself where nothing changes.
  -- t:to('cuda'), t:to('float16'), t:to(u), t:to{dtype =, device =, memory_format =, copy =, non_blocking =, saturate =}
  -- To an 8-bit float, values beyond the largest and infinities become the largest; with saturate = false NaN
  -- (float8_e4m3) or infinity (float8_e5m2).
  -- With non_blocking a copy between pinned memory and a GPU is only queued: the CPU's side may be written, or read, after
  -- the stream has come that far (amp.cuda.synchronize, an event). A copy to the CPU then lies in pinned memory.
  function methods.to(t, a, b, c)
    self_check(t, 'to')
    local dtype, device, format, copy, async, saturate
    local list, n = { a, b, c }, 3
    for i = 1, n do
      local v = list[i]
      if istype(ref_t, v) then
        local q = M.alive(v, 'to')
        dtype, device = q.dtype, q.device * 256 + q.device_index
      elseif type(v) == 'table' then
        for k, x in pairs(v) do
          if k == 'dtype' then dtype = types.dtype(x, 'to')
          elseif k == 'device' then device = types.device(x, 'to')
          elseif k == 'copy' then copy = options.boolean('to', 'copy', x)
          elseif k == 'memory_format' then
            if x ~= 'contiguous' and x ~= 'channels_last' and x ~= 'preserve' then
              err.throw('to', "memory_format must be 'contiguous', 'channels_last' or 'preserve', got %s", util.show(x))
            end
            if x ~= 'preserve' then format = x end
          elseif k == 'non_blocking' then async = options.boolean('to', 'non_blocking', x)
          elseif k == 'saturate' then saturate = options.boolean('to', 'saturate', x)
          else
            err.throw('to', 'unknown option %s%s (there are dtype, device, memory_format, copy, non_blocking, saturate)', util.show(k),
              util.hint(k, { 'dtype', 'device', 'memory_format', 'copy', 'non_blocking', 'saturate' }))
          end
        end
      elseif type(v) == 'string' then
        if types.dtype_code[v] then dtype = types.dtype_code[v]
        elseif types.device_code[v] then device = types.device(v, 'to')
        else
          local hint = v:find '^%a+:%d*$' and types.device_hint(v) or types.dtype_hint(v)
          if hint == '' then hint = types.device_hint(v) end
          err.throw('to', '%s is neither a dtype nor a device%s%s', util.show(v), hint, v:find '^cuda:' and ' GPUs are counted from 1' or '')
        end
      elseif type(v) ~= 'nil' then
        err.throw('to', 'expected a dtype, a device, a tensor or options, got %s', util.show(v))
      elseif i == 1 then
        err.throw('to', 'expected a dtype, a device, a tensor or options, got nothing')
      end
    end
    return convert(t, 'to', dtype, device, format, copy, async, saturate)
  end

  local shorthand = { half = 'float16', float = 'float32', double = 'float64', bfloat16 = 'bfloat16', long = 'int64',
    int = 'int32', short = 'int16', char = 'int8', byte = 'uint8', bool = 'bool' }
  for name, dtype in pairs(shorthand) do
    local code = types.dtype_code[dtype]
    --- The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
    -- Options are those of `to`: t:half{memory_format = 'channels_last'}.
    methods[name] = function(t, given)
      if type(given) == 'table' then return methods.to(t, dtype, given) end
      if self_check(t, name).dtype == code then return t end
      return cast(t, dtype)
    end
  end

  --- On the CPU. Options are those of `to`.
  function methods.cpu(t, given)
    if type(given) == 'table' then return methods.to(t, 'cpu', given) end
    if self_check(t, 'cpu').device == 0 then return t end
    return to_device(t, 'cpu')
  end

  local function non_blocking(given, op)
    if type(given) == 'boolean' then return given end
    local o = options.read(op, given, { 'non_blocking' }, { non_blocking = false })
    options.boolean(op, 'non_blocking', o.non_blocking)
    return o.non_blocking
  end

  --- On a GPU: the given one (from 1), else the first. t:cuda(), t:cuda(2), t:cuda{non_blocking = true}
  function methods.cuda(t, index, given)
    self_check(t, 'cuda')
    if type(index) == 'table' then index, given = nil, index end
    return convert(t, 'cuda', nil, types.device(index and 'cuda:' .. tostring(index) or 'cuda', 'cuda'), nil, nil, non_blocking(given, 'cuda'))
  end

  --- t:copy_(u): u's values, broadcast, in t's dtype. t:copy_(u, {non_blocking = true}) only queues a copy between
  -- pinned memory and a GPU, as `to` does.
  function methods.copy_(t, u, given)
    if given == nil then return copy_(t, u) end
    self_check(t, 'copy_')
    if not (non_blocking(given, 'copy_') and istype(ref_t, u)) then return copy_(t, u) end
    call.try('copy_', C.amp_copy_async, S, t, u)
    return t
  end

  --- A copy in pinned memory, which a GPU copies from and to while the program goes on; without history. The tensor itself
  -- if it is pinned, or where there is no GPU. Pinning costs; make it once and fill it again, or leave it to a DataLoader.
  function methods.pin_memory(t)
    self_check(t, 'pin_memory')
    return call.make('pin_memory', C.amp_pin_memory, t)
  end

  --- Whether the tensor lies in pinned memory; false without a GPU.
  function methods.is_pinned(t)
    self_check(t, 'is_pinned')
    return C.amp_is_pinned(t) == 1
  end

  --- The dtype's name; with a dtype, a conversion.
  function methods.type(t, dtype)
    self_check(t, 'type')
    if dtype == nil then return t.dtype end
    return convert(t, 'type', types.dtype(dtype, 'type'))
  end

  --- In the dtype of u.
  function methods.type_as(t, u)
    self_check(t, 'type_as')
    return convert(t, 'type_as', self_check(u, 'type_as').dtype)
  end

  local like = { expand_as = 'expand', view_as = 'view', reshape_as = 'reshape' }
  for name, op in pairs(like) do
    --- As expand, view or reshape with the shape of u: expand_as, view_as, reshape_as.
    methods[name] = function(t, u)
      self_check(t, name)
      self_check(u, name)
      return ops.get(op)(t, u.shape)
    end
  end

  --- The tensor tiled; missing leading repeats count as 1. (`repeat` is a word of Lua's grammar.)
  function methods.tile(t, ...)
    local p = self_check(t, 'tile')
    local given = ...
    local reps = type(given) == 'table' and { unpack(given) } or { ... }
    if #reps == 0 and type(given) == 'table' then
      given = options.read('tile', given, { 'dims' }).dims
      reps = type(given) == 'table' and { unpack(given) } or { given }
    end
    while #reps < p.ndim do table.insert(reps, 1, 1) end
    return ops.get 'repeat'(t, reps)
  end

  -- -- Copies and flags -----------------------------------------------------------------------

  --- The same elements without history.
  function methods.detach(t)
    self_check(t, 'detach')
    return call.make('detach', C.amp_detach, t)
  end

  --- Ask for gradients (a leaf only). Gives the tensor.
  function methods.requires_grad_(t, on)
    self_check(t, 'requires_grad_')
    if on == nil then on = true end
    t.requires_grad = on
    return t
  end

  local zero
  --- Fill with zeros.
  function methods.zero_(t)
    zero = zero or ops.get 'fill_'
    return zero(t, 0)
  end

  --- Give the memory back now; the handle can't be used afterwards. Twice is harmless.
  function methods.free(t)
    if not istype(ref_t, t) then self_check(t, 'free') end
    C.amp_release(t)
  end

  --- Take the storage and shape of another tensor, keeping identity.
  function methods.set_data(t, u)
    self_check(t, 'set_data')
    self_check(u, 'set_data')
    require('amp.tensor').set_data('set_data', t, u)
    return t
  end

  --- Count of in-place changes of the storage so far.
  function methods.version(t)
    self_check(t, 'version')
    return tonumber(C.amp_tensor_version(t))
  end

  --- Whether two tensors lie in the same storage.
  function methods.shares_storage(t, u)
    self_check(t, 'shares_storage')
    self_check(u, 'shares_storage')
    return C.amp_same_storage(t, u) ~= 0
  end

  -- -- Splitting --------------------------------------------------------------------------------

  local function pieces(t, dim, lengths)
    local narrow = ops.get 'narrow'
    local list, start = {}, 1
    for i = 1, #lengths do
      list[i] = narrow(t, dim, start, lengths[i])
      start = start + lengths[i]
    end
    return list
  end

  local function count(v, op, name)
    if type(v) ~= 'number' or v % 1 ~= 0 or v < 1 then
      err.throw(op, "argument '%s' must be a positive integer, got %s", name, util.show(v))
    end
    return v
  end

  local function dim_of(p, dim, op)
    if type(dim) == 'table' then dim = options.read(op, dim, { 'dim' }).dim end
    return dimension(p, dim or 1, op)
  end

  --- Views of at most `size` elements each along a dimension, or of the listed sizes.
  function methods.split(t, size, dim)
    local p = self_check(t, 'split')
    dim = dim_of(p, dim, 'split')
    local total = tonumber(p.size[dim - 1])
    local lengths = {}
    if type(size) == 'table' then
      local sum = 0
      err.list('split', size, 'sizes')
      for i = 1, #size do
        if type(size[i]) ~= 'number' or size[i] % 1 ~= 0 or size[i] < 0 then
          err.throw('split', 'size %d must be an integer of 0 or more, got %s', i, util.show(size[i]))
        end
        lengths[i] = size[i]
        sum = sum + size[i]
      end
      if sum ~= total then
        err.throw_code('shape', 'split', 'sizes %s add up to %d, but dimension %d has %d', table.concat(size, ', '), sum, dim, total)
      end
    else
      count(size, 'split', 'size')
      local left = total
      repeat
        lengths[#lengths + 1] = math.min(size, left)
        left = left - size
      until left <= 0
    end
    return pieces(t, dim, lengths)
  end

  --- At most n views of equal size (the last may be smaller) along a dimension.
  function methods.chunk(t, n, dim)
    local p = self_check(t, 'chunk')
    dim = dim_of(p, dim, 'chunk')
    count(n, 'chunk', 'chunks')
    return methods.split(t, math.max(1, math.ceil(tonumber(p.size[dim - 1]) / n)), dim)
  end

  --- A list of the slices of a dimension, which goes.
  function methods.unbind(t, dim)
    local p = self_check(t, 'unbind')
    dim = dim_of(p, dim, 'unbind')
    local size = tonumber(p.size[dim - 1])
    if size == 2 or size == 3 then return { ops.get 'unbind'(t, dim) } end
    local select_, list = ops.get 'select', {}
    for i = 1, tonumber(p.size[dim - 1]) do list[i] = select_(t, dim, i) end
    return list
  end

  methods.unstack = methods.unbind

  --- n views whose sizes differ by at most one, or views that begin at the listed indices (the first at 1).
  -- t:tensor_split(3), t:tensor_split({3, 5}, dim): 1..2, 3..4, 5..end
  function methods.tensor_split(t, where, dim)
    local p = self_check(t, 'tensor_split')
    dim = dim_of(p, dim, 'tensor_split')
    local total = tonumber(p.size[dim - 1])
    local lengths = {}
    if type(where) == 'table' then
      local at = 1
      err.list('tensor_split', where, 'indices')
      for i = 1, #where + 1 do
        local next_ = where[i] or total + 1
        if type(next_) ~= 'number' or next_ % 1 ~= 0 or next_ == 0 then
          err.throw('tensor_split', 'index %d must be an integer (from 1, or negative from the end), got %s', i, util.show(next_))
        end
        if next_ < 0 then next_ = next_ + total + 1 end
        next_ = math.min(math.max(next_, at), total + 1)
        lengths[i] = next_ - at
        at = next_
      end
    else
      count(where, 'tensor_split', 'sections')
      if where > 2 ^ 24 then err.throw('tensor_split', '%.0f sections are too many: each is a tensor of its own', where) end
      for i = 1, where do lengths[i] = math.floor(total / where) + (i <= total % where and 1 or 0) end
    end
    return pieces(t, dim, lengths)
  end

  -- -- Ops under another name ----------------------------------------------------------------------

  local others = { swapaxes = 'transpose', swapdims = 'transpose', moveaxis = 'movedim', broadcast_to = 'expand', argwhere = 'nonzero' }
  for name, op in pairs(others) do
    methods[name] = function(...)
      local f = ops.get(op)
      methods[name] = f
      return f(...)
    end
  end

  --- As amp.bernoulli.
  function methods.bernoulli(t, p) return require('amp.tensor.sampling').bernoulli(t, p) end

  -- -- Comparison ---------------------------------------------------------------------------------

  --- Same shape and values? Waits for the device.
  -- @treturn boolean
  function methods.equal(t, u)
    self_check(t, 'equal')
    self_check(u, 'equal')
    return ops.get 'equal'(t, u):item() and true or false
  end

  --- Every |t - u| <= atol + rtol * |u|? Waits for the device.
  -- @tparam Tensor u
  -- @tparam ?table options {rtol = 1e-5, atol = 1e-8, equal_nan = false}, or the same in places
  -- @treturn boolean
  function methods.allclose(t, u, rtol, atol, equal_nan)
    self_check(t, 'allclose')
    if not istype(ref_t, u) then err.throw('allclose', "argument 2 'other' must be a tensor, got %s", util.show(u)) end
    if type(rtol) == 'table' then
      local o = rtol
      for k in pairs(o) do
        if k ~= 'rtol' and k ~= 'atol' and k ~= 'equal_nan' then
          err.throw('allclose', 'unknown option %s%s (there are rtol, atol, equal_nan)', util.show(k),
            util.hint(k, { 'rtol', 'atol', 'equal_nan' }))
        end
      end
      rtol, atol, equal_nan = o.rtol, o.atol, o.equal_nan
    end
    rtol, atol = rtol or 1e-5, atol or 1e-8
    if type(rtol) ~= 'number' then err.throw('allclose', 'rtol must be a number, got %s', util.show(rtol)) end
    if type(atol) ~= 'number' then err.throw('allclose', 'atol must be a number, got %s', util.show(atol)) end
    -- on the host, in double precision: no op's policy can interfere
    local a, b = t:detach(), u:detach()
    if tostring(a:size()) ~= tostring(b:size()) then
      b = b + 0 * a -- raises for shapes that don't broadcast
      a = a + 0 * b
    end
    local n = a:numel()
    local x, y = ffi.new('double[?]', n + 1), ffi.new('double[?]', n + 1)
    local waits = S.host_waits
    call.try('allclose', C.amp_read, S, a, x, n)
    call.try('allclose', C.amp_read, S, b, y, n)
    S.host_waits = waits + 1
    for i = 0, n - 1 do
      local p, q = x[i], y[i]
      if p ~= q then
        if p ~= p or q ~= q then
          if not (equal_nan and p ~= p and q ~= q) then return false end
        elseif math.abs(p - q) > atol + rtol * math.abs(q) or math.abs(p - q) == math.huge then
          return false
        end
      end
    end
    return true
  end

  -- -- Autograd, in amp.autograd ---------------------------------------------------------------------

  local function later(module, name)
    methods[name] = function(...)
      local f = require(module).methods[name]
      methods[name] = f
      return f(...)
    end
  end
  later('amp.autograd', 'backward')
  later('amp.autograd', 'register_hook')

  --- Product summed over dimensions of both, see amp.tensordot.
  function methods.tensordot(...) return require('amp.ops.matmul').tensordot(...) end
end
