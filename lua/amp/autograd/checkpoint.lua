--- amp.checkpoint: trade time for memory. The values between the arguments and the results of
-- a function are not kept for backward, which computes them again in the forward's autocast
-- and random state. The results are tied to the tensor arguments and to the leaves (weights)
-- that the function used, so every kind of backward works through it.
-- @module amp.autograd.checkpoint
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local autograd = require 'amp.autograd'
local autocast = require 'amp.precision.autocast'
local call = require 'amp.core.call'
local engine = require 'amp.autograd.engine'
local err = require 'amp.error'
local func = require 'amp.autograd.function'
local options = require 'amp.options'
local nested = require 'amp.core.nested'
local ops = require 'amp.ops'
local region = require 'amp.core.region'
local util = require 'amp.util'
local types = require 'amp.types'
local C, S, ref_t = core.C, core.S, core.ref_t

local option_names = { 'use_reentrant', 'preserve_rng_state' }
local CREATE_GRAPH, RETAIN_GRAPH = C.AMP_B_CREATE_GRAPH, C.AMP_B_RETAIN_GRAPH
local ALLOW_UNUSED, STOP = C.AMP_B_ALLOW_UNUSED, C.AMP_B_STOP

local function tracked(t)
  local p = t.ptr_
  return p ~= nil and types.has_gradient(p.dtype) and C.amp_tensor_flags(t) % 4 ~= 0
end

-- Recording, in the random state of the forward pass.
local replay = region.kind(function(rec)
  rec.mode, rec.seed, rec.offset = S.grad_mode, S.seed, S.rng_offset
end, function(rec)
  S.grad_mode, S.seed, S.rng_offset = rec.inner_mode, rec.inner_seed, rec.inner_offset
end, function(rec)
  rec.inner_mode, rec.inner_seed, rec.inner_offset = S.grad_mode, S.seed, S.rng_offset
end, function(rec)
  S.grad_mode, S.seed, S.rng_offset = rec.mode, rec.seed, rec.offset
end)

-- Changes of what was there before are noted.
local function nothing() end
local journaled = region.kind(nothing, function(rec) C.amp_journal_open(S, rec.journal) end, nil, function(rec) C.amp_journal_shut(S, rec.journal) end)

-- The second run is over, or failed: what it changed is as it was.
local restored = region.kind(nothing, nothing, nil, nothing, function(rec, failed)
  local rc = C.amp_journal_forth(S, rec.journal)
  if rc < 0 and call.again(rc) then rc = C.amp_journal_forth(S, rec.journal) end
  if rc < 0 and not failed then err.raise 'checkpoint' end
end)

local function journal_of() return ffi.gc(call.object('checkpoint', C.amp_journal_new), C.amp_journal_free) end

local function version(t) return tonumber(C.amp_tensor_version(t)) end

local function form(t) return ('%s of shape %s'):format(t.dtype, tostring(t:size())) end

local function leaf_of(t)
  local x = func.detached(t)
  x.requires_grad = true
  return x
end

local function leaves_of(list)
  local n = #list
  if n == 0 then return {} end
  local roots = ffi.new('amp_tensor *[?]', n)
  for i = 1, n do roots[i - 1] = list[i].ptr_ end
  local count = C.amp_graph_leaves(S, roots, n, nil, 0)
  if count < 0 then err.raise 'checkpoint' end
  -- one handle after the other: each has a finalizer of its own
  local found = {}
  local slots = ffi.new('amp_tensor *[?]', math.max(count, 1))
  local refs = ffi.cast('amp_ref *', slots)
  count = C.amp_graph_leaves(S, roots, n, refs, count)
  if count < 0 then err.raise 'checkpoint' end
  for i = 1, count do
    local o = ref_t()
    o.ptr_ = slots[i - 1]
    found[i] = o
  end
  return found
end

local function compute_again(record, g, flags)
  local create = flags % 2 ~= 0
  for i = 1, #record.given do
    if version(record.given[i]) ~= record.versions[i] then
      err.throw_code('autograd', 'checkpoint', 'argument tensor %d was changed in place after the forward pass; backward has to compute with it again', i)
    end
  end
  -- arguments: new leaves, or, for derivatives of derivatives, aliases with their history
  local xs, at = {}, 0
  local alias = ops.get 'alias'
  local args = nested.map(function(t)
    if not tracked(t) then return t end
    at = at + 1
    xs[at] = create and alias(t) or leaf_of(t)
    return xs[at]
  end, record.args)
  local results = util.pack(autocast.with(record.autocast, region.run, replay,
    { inner_mode = 1, inner_seed = record.seed, inner_offset = record.offset }, record.fn, unpack(args, 1, args.n)))
  local outs = nested.flatten(results)
  if #outs ~= record.nout then
    err.throw('checkpoint', 'the function gave %d tensors in the forward pass, but %d when computed again', record.nout, #outs)
  end
  for i = 1, #outs do
    local now = form(outs[i])
    if now ~= record.forms[i] then
      err.throw('checkpoint', 'the function gave %s as tensor %d in the forward pass, but %s when computed again', record.forms[i], i, now)
    end
  end
  local roots, grads = {}, {}
  for i = 1, #outs do
    if g[i] and tracked(outs[i]) then
      roots[#roots + 1] = outs[i]
      grads[#roots] = g[i]
    end
  end
  if #roots == 0 then return {} end
  local targets, place = {}, {}
  local n = #record.inputs
  for i = 1, n do
    local t = xs[i] or record.inputs[i]
    if tracked(t) then
      targets[#targets + 1] = t
      place[#targets] = i
    end
  end
  local result = {}
  local function read(e)
    for i = 1, #targets do
      local o = ref_t()
      if C.amp_backward_result(S, o, e, i - 1) < 0 then err.raise 'checkpoint' end
      if o.ptr_ ~= nil then result[place[i]] = o end
    end
  end
  engine.begin('checkpoint', roots, grads, targets,
    (create and CREATE_GRAPH + RETAIN_GRAPH or 0) + ALLOW_UNUSED + STOP, read)
  return result
end

local function run_backward(record, g, _, flags)
  local journal = record.journal
  for i = 1, #record.leaves do
    local leaf = record.leaves[i]
    if version(leaf) ~= record.leaf_versions[i] then
      err.throw_code('autograd', 'checkpoint', 'a weight (%s of shape %s) that the function uses was changed in place after the forward pass; '
        .. 'backward has to compute with it again', leaf.dtype, tostring(leaf:size()))
    end
  end
  if C.amp_journal_count(journal) == 0 then return compute_again(record, g, flags) end
  call.try('checkpoint', C.amp_journal_back, S, journal)
  return region.run(restored, { journal = journal }, compute_again, record, g, flags)
end

-- Results with a history of their own: backward of it is the record's
local function tie_results(record, inputs, xs, results)
  local outs = nested.flatten(results)
  local leaves, leaf_versions, forms = {}, {}, {}
  for _, leaf in ipairs(leaves_of(outs)) do
    if not xs[tonumber(leaf.ptr_.id)] then
      inputs[#inputs + 1], leaves[#leaves + 1] = leaf, leaf
      leaf_versions[#leaves] = version(leaf)
    end
  end
  for i = 1, #outs do forms[i] = form(outs[i]) end
  record.inputs, record.nout = inputs, #outs
  record.leaves, record.leaf_versions, record.forms = leaves, leaf_versions, forms
  local out, k = {}, 0
  results = nested.map(function(t)
    k = k + 1
    if not tracked(t) then return t end
    out[k] = func.detached(t)
    return out[k]
  end, results)
  if next_key(out) then func.tie(record, out) end
  return results
end

-- fn runs twice, but changes tensors once: a batch norm's running statistics and counter, and what fn itself writes into
-- buffers by ops, are for the second run what they were for the first, and afterwards what they were before it. What fn
-- does to Lua's values (a counter, a list, a print) happens twice; what it writes through `data_ptr` is not seen.
local function checkpoint(fn, ...)
  region.here()
  if S.grad_mode == 0 or C.amp_graph_recording(S) ~= 0 then return fn(...) end
  local args = util.pack(...)
  local record = { fn = fn, backward = run_backward, autocast = autocast.snapshot(), seed = S.seed, offset = S.rng_offset }
  local inputs, given, versions, xs = {}, {}, {}, {}
  record.given, record.versions = given, versions
  record.args = nested.map(function(t)
    if t.ptr_ == nil then err.throw('checkpoint', 'a tensor among the arguments was freed') end
    local held = func.hold(t)
    local place = #given + 1
    given[place], versions[place] = held, version(t)
    if tracked(t) then inputs[#inputs + 1] = held end
    return held
  end, args)
  -- recorded only to learn which leaves take part; the graph goes at once
  local inner = nested.map(function(t)
    if not tracked(t) then return t end
    local x = leaf_of(t)
    xs[tonumber(x.ptr_.id)] = true
    return x
  end, record.args)
  record.journal = journal_of()
  local results = util.pack(region.run(journaled, { journal = record.journal }, fn, unpack(inner, 1, inner.n)))
  -- what is left needs memory: without it nothing of this call stays, the function's changes and draws neither
  local ok, e = pcall(tie_results, record, inputs, xs, results)
  if not ok then
    C.amp_journal_undo(S, record.journal)
    if S.seed == record.seed then S.rng_offset = record.offset end
    error(e, 0)
  end
  return unpack(e, 1, e.n)
end

-- PyTorch's options: every checkpoint here keeps the random state, and none is reentrant, so they are checked and have no effect.
local function is_options(v)
  if not options.meant(nil, v, option_names) then return false end
  for _, name in ipairs(option_names) do
    if v[name] ~= nil then options.boolean('checkpoint', name, v[name]) end
  end
  return true
end

--- fn(...), whose inner values backward computes again instead of keeping them.
-- Tensors with a history that fn uses go in as arguments (also in tables); weights need not.
-- @tparam function fn
-- @param ... its arguments; PyTorch's {use_reentrant, preserve_rng_state} among them, last, have no effect
-- @return fn's results
return function(fn, ...)
  autograd.need_function('checkpoint', fn)
  local n = select('#', ...)
  if n > 0 and is_options((select(n, ...))) then
    local args = { ... }
    return checkpoint(fn, unpack(args, 1, n - 1))
  end
  if n > 1 and is_options((...)) then return checkpoint(fn, select(2, ...)) end
  return checkpoint(fn, ...)
end
