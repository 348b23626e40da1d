--- Ops of ONNX that index, sort and reduce, by amp's. Indices of a file count from 0: operands are raised by 1, results lowered.
-- @module amp.io.onnx.index
local Node = require 'amp.io.onnx.node'
local host = require 'amp.io.onnx.host'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'
local get, cast = ops.get, Node.cast

local M = {}

-- Index operand i as amp counts: from 1; negative ones are from the end in both.
local function indices(n, i)
  local v = n:value(i)
  if v.h then
    local negative, h = true, {}
    for k, x in ipairs(v.h) do
      h[k] = x >= 0 and x + 1 or x
      negative = negative and x < 0
    end
    return n.model:tensor(host.value(h, 'int64', v.shape)), h
  end
  local t = cast(n:tensor(i), 'int64')
  return get 'add'(t, cast(get 'ge'(t, 0), 'int64'))
end

function M.Gather(n)
  local x = n:tensor(1)
  local d = n:dim(n:attr('axis', 0), x:dim())
  local index, known = indices(n, 2)
  if known and #known == 1 and index:dim() == 0 then return get 'select'(x, d, known[1]) end
  local shape, count = {}, index:numel()
  n:room(x:numel() / math.max(1, x:size(d)) * count)
  if index:dim() == 1 then return get 'index_select'(x, d, index) end
  for k = 1, d - 1 do shape[k] = x:size(k) end
  for k = 1, index:dim() do shape[#shape + 1] = index:size(k) end
  for k = d + 1, x:dim() do shape[#shape + 1] = x:size(k) end
  if d == 1 and x:dim() == 2 and proto.floats[x.dtype] and not known then return get 'embedding'(index, x) end
  return get 'reshape'(get 'index_select'(x, d, get 'reshape'(index, {-1})), shape)
end

function M.GatherElements(n)
  local x = n:tensor(1)
  return get 'gather'(x, n:dim(n:attr('axis', 0), x:dim()), (indices(n, 2)))
end

local combine = {add = 'sum', mul = 'prod', max = 'amax', min = 'amin'}

function M.ScatterElements(n)
  local x, values, how = n:tensor(1), n:tensor(3), n:attr('reduction', 'none')
  local d, index = n:dim(n:attr('axis', 0), x:dim()), (indices(n, 2))
  if how == 'none' then return get 'scatter'(x, d, index, values) end
  if not combine[how] then n:fail("attribute 'reduction' is '%s'", how) end
  return get 'scatter_reduce'(x, d, index, values, combine[how], true)
end
M.Scatter = M.ScatterElements

-- Index tensors of the first dimensions, from the last dimension of an operand.
local function columns(index)
  local list, dims, last = {}, {}, index:dim()
  for k = 1, index:size(last) do
    list[k], dims[k] = get 'select'(index, last, k), k
  end
  return list, dims
end

function M.GatherND(n)
  local x, index, batch = n:tensor(1), (indices(n, 2)), n:attr('batch_dims', 0)
  if batch < 0 or batch >= math.min(x:dim(), index:dim()) then n:fail("attribute 'batch_dims' is %d", batch) end
  local list, dims = columns(index)
  if #list == 0 or #list + batch > x:dim() or #list + batch > 8 then n:fail('its indices have %d columns of %d dimensions', #list, x:dim()) end
  if batch > 0 then
    local all, rank = {}, index:dim() - 1
    for b = 1, batch do
      local shape = {}
      for k = 1, rank do shape[k] = k == b and x:size(b) or 1 end
      all[b] = get 'reshape'(get 'arange'(1, x:size(b) + 1, 1, 'int64', 'cpu'), shape)
    end
    for k = 1, #list do all[batch + k], dims[batch + k] = list[k], batch + k end
    for b = 1, batch do dims[b] = b end
    list = all
  end
  return get 'index'(x, list, dims)
end

function M.ScatterND(n)
  local x, index, values, how = n:tensor(1), (indices(n, 2)), n:tensor(3), n:attr('reduction', 'none')
  local list, dims = columns(index)
  if how == 'none' or how == 'add' then return get 'index_put'(x, list, values, how == 'add', dims) end
  if not combine[how] then n:fail("attribute 'reduction' is '%s'", how) end
  -- rows of the indexed dimensions as one, by their places
  local inner, outer, place = 1, 1, nil
  for d = 1, x:dim() do
    if d <= #list then outer = outer * x:size(d) else inner = inner * x:size(d) end
  end
  for k = 1, #list do
    local one = get 'sub'(list[k], 1)
    one = get 'where'(get 'lt'(list[k], 0), get 'add'(list[k], x:size(k)), one)
    place = place and get 'add'(get 'mul'(place, x:size(k)), one) or one
  end
  local rows = get 'expand'(get 'reshape'(get 'add'(place, 1), {-1, 1}), {place:numel(), inner})
  local shape = {unpack(x:size())}
  local flat = get 'scatter_reduce'(get 'reshape'(x, {outer, inner}), 1, get 'contiguous'(rows), get 'reshape'(values, {-1, inner}), combine[how], true)
  return get 'reshape'(flat, shape)
end

function M.OneHot(n)
  local depth, values = n:scalar(2, 'depth'), n:value(3)
  local index = n:tensor(1)
  index = cast(index, 'int64')
  local d = n:attr('axis', -1)
  d = n:dim(d, index:dim() + 1)
  if depth < 1 then n:fail('has the depth %s', tostring(depth)) end
  n:room(index:numel() * depth)
  local classes = get 'arange'(0, depth, 1, 'int64', 'cpu')
  local wrapped = get 'where'(get 'lt'(index, 0), get 'add'(index, depth), index)
  local hot = get 'eq'(get 'unsqueeze'(wrapped, -1), classes)
  if d ~= index:dim() + 1 then
    local dims, at = {}, 0
    for k = 1, index:dim() + 1 do
      if k == d then dims[k] = index:dim() + 1
      else
        at = at + 1
        dims[k] = at
      end
    end
    hot = get 'permute'(hot, dims)
  end
  local off, on
  if values.h and not values.param then off, on = values.h[1], values.h[2]
  else
    local t = n:tensor(3)
    off, on = get 'select'(t, 1, 1), get 'select'(t, 1, 2)
  end
  if off == 0 and on == 1 then return cast(hot, values.dtype) end
  if type(off) == 'number' then off = n:full({}, off, values.dtype) end
  return cast(get 'where'(hot, on, off), values.dtype)
end

function M.NonZero(n)
  return get 'transpose'(get 'sub'(get 'nonzero'(n:tensor(1)), 1), 1, 2)
end

function M.Compress(n)
  local x, axis = n:tensor(1), n:attr 'axis'
  local keep = n:value(2)
  local index
  if keep.h then
    local rows = {}
    for i, k in ipairs(keep.h) do
      if k ~= 0 then rows[#rows + 1] = i end
    end
    index = n.model:tensor(host.value(rows, 'int64'))
  else index = get 'select'(get 'nonzero'(n:tensor(2)), 2, 1) end
  if axis == nil then return get 'index_select'(get 'reshape'(x, {-1}), 1, index) end
  return get 'index_select'(x, n:dim(axis, x:dim()), index)
end

local function from_zero(t) return get 'sub'(t, 1) end

function M.TopK(n)
  local x = n:tensor(1)
  local k = n:has(2) and n:scalar(2, 'K') or n:attr 'k'
  if type(k) ~= 'number' then n:fail 'has no k' end
  local d = n:dim(n:attr('axis', -1), x:dim())
  local values, index = get 'topk'(x, k, d, n:attr('largest', 1) == 1, n:attr('sorted', 1) == 1)
  return values, from_zero(index)
end

local function arg(name)
  return function(n)
    local x = n:tensor(1)
    local d, keep = n:dim(n:attr('axis', 0), x:dim()), n:attr('keepdims', 1) == 1
    if n:attr('select_last_index', 0) == 0 then return from_zero(get(name)(x, d, keep)) end
    local last = get(name)(get 'flip'(x, {d}), d, keep)
    return get 'rsub' and get 'rsub'(last, x:size(d)) or get 'add'(get 'neg'(last), x:size(d))
  end
end
M.ArgMax, M.ArgMin = arg 'argmax', arg 'argmin'

function M.CumSum(n)
  local x = n:tensor(1)
  local d = n:dim(n:scalar(2, 'axis'), x:dim())
  local back = n:attr('reverse', 0) == 1
  local dtype = x.dtype
  if back then x = get 'flip'(x, {d}) end
  local out = get 'cumsum'(x, d)
  if n:attr('exclusive', 0) == 1 then out = get 'sub'(out, x) end
  if back then out = get 'flip'(out, {d}) end
  return cast(out, dtype)
end

function M.CumProd(n)
  local x = n:tensor(1)
  local d = n:dim(n:scalar(2, 'axis'), x:dim())
  local back = n:attr('reverse', 0) == 1
  if back then x = get 'flip'(x, {d}) end
  local out = get 'cumprod'(x, d)
  if n:attr('exclusive', 0) == 1 then
    local one = get 'add'(get 'mul'(get 'narrow'(x, d, 1, 1), 0), 1)
    out = get 'narrow'(get 'cat'({one, cast(out, x.dtype)}, d), d, 1, x:size(d))
  end
  if back then out = get 'flip'(out, {d}) end
  return cast(out, x.dtype)
end

function M.ReverseSequence(n)
  local x, lengths = n:tensor(1), n:list(2, 'sequence_lens')
  local time, batch = n:dim(n:attr('time_axis', 0), x:dim()), n:dim(n:attr('batch_axis', 1), x:dim())
  if #lengths ~= x:size(batch) then n:fail('has %d lengths of %d', #lengths, x:size(batch)) end
  local list = {}
  for b, length in ipairs(lengths) do
    local row = get 'narrow'(x, batch, b, 1)
    if length < 0 or length > x:size(time) then n:fail('has the length %d', length) end
    local head, rest = get 'flip'(get 'narrow'(row, time, 1, length), {time}), x:size(time) - length
    list[b] = rest > 0 and get 'cat'({head, get 'narrow'(row, time, length + 1, rest)}, time) or head
  end
  return #list == 1 and list[1] or get 'cat'(list, batch)
end

-- -- Reductions --------------------------------------------------------------------------------------------

local formulas = {
  ReduceSum = function(x, dims, keep) return get 'sum'(x, dims, keep) end,
  ReduceMean = function(x, dims, keep)
    if proto.floats[x.dtype] then return get 'mean'(x, dims, keep) end
    return get 'trunc'(get 'mean'(cast(x, 'float64'), dims, keep))
  end,
  ReduceMax = function(x, dims, keep) return get 'amax'(x, dims, keep) end,
  ReduceMin = function(x, dims, keep) return get 'amin'(x, dims, keep) end,
  ReduceL1 = function(x, dims, keep) return get 'sum'(get 'abs'(x), dims, keep) end,
  ReduceL2 = function(x, dims, keep)
    if proto.floats[x.dtype] then return get 'norm'(x, 2, dims, keep) end
    return get 'sqrt'(get 'sum'(get 'square'(cast(x, 'float64')), dims, keep))
  end,
  ReduceSumSquare = function(x, dims, keep) return get 'sum'(get 'square'(x), dims, keep) end,
  ReduceLogSum = function(x, dims, keep) return get 'log'(get 'sum'(x, dims, keep)) end,
  ReduceLogSumExp = function(x, dims, keep) return get 'logsumexp'(proto.floats[x.dtype] and x or cast(x, 'float64'), dims, keep) end,
  ReduceProd = function(x, dims, keep)
    if dims and #dims == 0 then return x end
    for d = x:dim(), 1, -1 do
      local has = not dims
      for _, k in ipairs(dims or {}) do has = has or k == d end
      if has then x = get 'prod'(x, d, keep) end
    end
    return x
  end,
}

for name, formula in pairs(formulas) do
  M[name] = function(n)
    local x = n:tensor(1)
    local dtype, keep = x.dtype, n:attr('keepdims', 1) == 1
    local dims = n:axes(2, x:dim())
    local nothing = n:attr('noop_with_empty_axes', 0) == 1
    if dims and #dims == 0 then dims = nil end
    if not dims and nothing then
      if name == 'ReduceLogSum' then return get 'log'(x) end
      if name == 'ReduceSumSquare' then return get 'square'(x) end
      if name == 'ReduceL1' or name == 'ReduceL2' then return get 'abs'(x) end
      return x
    end
    if x:dim() == 0 then dims = nil end
    if x:dim() > 0 and not dims then
      dims = {}
      for d = 1, x:dim() do dims[d] = d end
    end
    if dtype == 'bool' then x = cast(x, 'uint8') end
    if (name == 'ReduceMax' or name == 'ReduceMin') and proto.floats[dtype] and x:numel() == 0 then -- of nothing
      local edge = name == 'ReduceMax' and -math.huge or math.huge
      return get 'add'(get 'sum'(x, dims, keep), edge)
    end
    return cast(formula(x, dims, keep), dtype)
  end
end

function M.LpNormalization(n)
  local x = n:tensor(1)
  local d, p = n:dim(n:attr('axis', -1), x:dim()), n:attr('p', 2)
  local norm = get 'norm'(x, p, {d}, true)
  return get 'div'(x, get 'where'(get 'eq'(norm, 0), 1, norm))
end

-- -- Boxes -------------------------------------------------------------------------------------------------

-- Corners, the lower ones first: of any two opposite ones (y before x, which changes no overlap), or of centres and sizes.
local function corners(n, boxes)
  local part = {}
  for k = 1, 4 do part[k] = get 'narrow'(boxes, 3, k, 1) end
  if n:attr('center_point_box', 0) == 1 then
    for k = 1, 2 do
      local half = get 'div'(part[k + 2], 2)
      part[k], part[k + 2] = get 'sub'(part[k], half), get 'add'(part[k], half)
    end
    return get 'cat'(part, 3)
  end
  return get 'cat'({get 'minimum'(part[1], part[3]), get 'minimum'(part[2], part[4]), get 'maximum'(part[1], part[3]),
    get 'maximum'(part[2], part[4])}, 3)
end

-- boxes B x N x 4, scores B x C x N: rows {batch, class, box}, the best of each class first.
function M.NonMaxSuppression(n)
  local boxes, scores = n:tensor(1), n:tensor(2)
  if boxes:dim() ~= 3 or boxes:size(3) ~= 4 or scores:dim() ~= 3 or scores:size(1) ~= boxes:size(1) or scores:size(3) ~= boxes:size(2) then
    n:fail('takes boxes B x N x 4 and scores B x C x N, got %s and %s', tostring(boxes:size()), tostring(scores:size()))
  end
  local most = n:has(3) and n:scalar(3, 'max_output_boxes_per_class') or 0
  local threshold, least = n:has(4) and n:scalar(4, 'iou_threshold') or 0, n:has(5) and n:scalar(5, 'score_threshold')
  local batch, count, classes = boxes:size(1), boxes:size(2), scores:size(2)
  local sorted, order = get 'sort'(scores, 3, true, true)
  local by_class = get 'expand'(get 'unsqueeze'(corners(n, boxes), 2), {-1, classes, -1, -1})
  by_class = get 'gather'(by_class, 3, get 'expand'(get 'unsqueeze'(order, 4), {-1, -1, -1, 4}))
  local groups = get 'mul'(order, 0)
  if least then groups = get 'masked_fill'(groups, get 'le'(sorted, least), -1) end
  local stays = get 'box_suppress'(get 'reshape'(by_class, {batch * classes, count, 4}), get 'reshape'(groups, {batch * classes, count}), threshold)
  stays = get 'reshape'(stays, {batch, classes, count})
  stays = get 'logical_and'(stays, get 'le'(get 'cumsum'(cast(stays, 'int64'), 3), most))
  local rows = get 'narrow'(get 'nonzero'(stays), 2, 1, 2)
  return get 'sub'(get 'cat'({rows, get 'unsqueeze'(get 'masked_select'(order, stays), 2)}, 2), 1)
end

function M.Unique(n) n:fail 'gives sizes that depend on values; it is not supported' end

return M
