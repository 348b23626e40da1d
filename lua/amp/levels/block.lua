--- A block of a scaled loss: amp.scale_loss, handle:scale_loss, wrapper:scale_loss.
-- While fn(scaled_loss) runs, the optimizers' gradients of before are laid aside; at the end
-- what fn left is unscaled, checked and added to them. So blocks of several losses, each with a
-- scale of its own, accumulate into one optimizer. It is a region: after an error gradients are
-- as they were before it, and whoever a coroutine yields to out of it sees those, too.
-- @module amp.levels.block
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local optimizer = require 'amp.optim.optimizer'
local region = require 'amp.core.region'
local side = require 'amp.levels.master_step'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local M = {}

-- -- Gradients laid aside --------------------------------------------------------------------------

local function new_aside(buffer, n)
  if n == 0 then return nil end
  local k = call.object('scale_loss', C.amp_aside_new, buffer, n)
  return ffi.gc(k, C.amp_aside_free)
end

local function put(k, aside) if k then call.attempt('scale_loss', C.amp_aside_put, S, k, aside) end end
local function merge(k) if k then call.try('scale_loss', C.amp_aside_merge, S, k) end end

-- Parameters of an optimizer without a master; found anew when it has got more.
local function plain_of(opt, s)
  if s.plain and optimizer.is(opt) and s.known == opt._count then return s.plain end
  local is_master, plain = {}, {}
  for _, m in ipairs(s.master) do is_master[m:id()] = true end
  for _, p in ipairs(side.params(opt)) do
    if not is_master[p:id()] then plain[#plain + 1] = p end
  end
  s.plain, s.known, s.plain_buffer = plain, opt._count, side.buffer_of(plain)
  return plain
end

-- One optimizer's part: what is laid aside of its plain parameters, of its masters, of the models' parameters.
local function open_part(opt)
  local s = side.of(opt)
  if not s.scaled then s:give() end
  local plain, n = plain_of(opt, s), #s.master
  return { opt = opt, side = s, params = plain, plain = new_aside(s.plain_buffer, #plain), master = new_aside(s.masters, n),
    model = new_aside(s.models, n) }
end

local function enter(rec)
  for i = 1, #rec do
    local part = rec[i]
    part.side.inside = true
    put(part.plain, 1)
    put(part.master, 1)
    put(part.model, 1)
  end
end

local function leave(rec) -- in reverse: a parameter may belong to two optimizers
  for i = #rec, 1, -1 do
    local part = rec[i]
    part.side.inside = false
    put(part.model, 0)
    put(part.master, 0)
    put(part.plain, 0)
  end
end

-- -- The end ---------------------------------------------------------------------------------------

-- The gradients stay scaled: those that were unscaled already are scaled once more.
local function delay(rec, part)
  local s = part.side
  if s.scaled then
    merge(part.model)
  elseif part.plain and C.amp_aside_count(part.plain) > 0 then
    put(part.plain, 0)
    local amp = require 'amp'
    amp.no_grad(amp.autocast.off, function()
      for _, p in ipairs(part.params) do
        if p.grad ~= nil then
          p.grad:mul_(rec.scaler:scale_tensor(p.device):to(p.dtype))
          C.amp_grad_origin_put(p, C.AMP_O_SCALED)
        end
      end
    end)
    put(part.plain, 1)
  end
  merge(part.plain)
  merge(part.master)
  s.scaled = rec.scaler
end

local function close(rec)
  if rec.delay then
    for i = 1, #rec do delay(rec, rec[i]) end
    return
  end
  local opts = {}
  for i = 1, #rec do
    local part = rec[i]
    opts[i] = part.opt
    if part.side.scaled then
      merge(part.plain)
      merge(part.model)
    end
    part.side:give()
  end
  rec.scaler:end_block(opts, side.hold)
  for i = 1, #rec do
    local part = rec[i]
    merge(part.plain)
    merge(part.master)
    part.side.scaled = nil
  end
end

-- Give back what is laid aside still: after an error what the block left, else nothing anybody needs.
local function release(rec, failed)
  if failed then leave(rec) end
  for i = 1, #rec do
    for _, name in ipairs { 'plain', 'master', 'model' } do
      local k = rec[i][name]
      rec[i][name] = nil
      if k then C.amp_aside_free(ffi.gc(k, nil)) end
    end
  end
end

local function nothing() end

-- An error in `close` ends as one in the block: `release` comes with failed = true.
local kind = region.kind(nothing, enter, nil, leave, release, function(rec)
  enter(rec)
  close(rec)
  for i = 1, #rec do rec[i].side.inside = false end
  release(rec)
  if S.autocast_on ~= 0 and S.autocast_depth == 0 then C.amp_autocast_leave(S) end
end)

-- -- What may be given ---------------------------------------------------------------------------------

--- An error unless v is a loss, or where that is allowed a list of losses.
function M.check_loss(op, v, may_be_list)
  if may_be_list and type(v) == 'table' and #v > 0 then
    for i = 1, #v do M.check_loss(op .. (': loss %d'):format(i), v[i]) end
    return
  end
  if not istype(ref_t, v) then
    err.throw(op, 'argument 1 must be a loss, a tensor%s, got %s', may_be_list and ' or a list of them' or '', util.show(v))
  end
  if v.ptr_ == nil then err.throw(op, 'the loss is a tensor that was freed') end
  if v.ptr_.dtype > 3 then err.throw_code('dtype', op, 'a loss is a float tensor, got %s', v.dtype) end
  if not v.requires_grad then
    err.throw_code('autograd', op, 'the loss does not require grad, so no backward can start from it; was it computed under amp.no_grad, or detached?')
  end
end

function M.check_function(op, place, fn)
  local m = getmetatable(fn)
  if type(fn) == 'function' or (type(m) == 'table' and m.__call) then return end
  err.throw(op, 'argument %d must be a function that gets the scaled loss, got %s', place, util.show(fn))
end

--- The optimizers of one or a list, each once.
-- @treturn table list of those whose parameters step
function M.optimizers(op, given)
  local list = type(given) == 'table' and given.step == nil and #given > 0 and given or { given }
  local out, seen = {}, {}
  for i = 1, #list do
    out[i] = side.inner(op, list[i])
    if seen[out[i]] then err.throw(op, 'optimizer %d (%s) is given twice, also as number %d', i, side.describe(out[i]), seen[out[i]]) end
    seen[out[i]] = i
    if out[i].needs_closure then
      err.throw_code('state', op, 'optimizer %s evaluates a closure many times a step, and closures are not supported under a scaler', side.describe(out[i]))
    end
  end
  return out
end

--- Run fn(scaled loss) in a block.
-- @tparam string op who asks
-- @param scaler a GradScaler
-- @tparam Tensor loss
-- @tparam table opts of `optimizers`
-- @tparam boolean delayed the gradients stay scaled
-- @tparam function fn
-- @return fn's results
function M.run(op, scaler, loss, opts, delayed, fn)
  region.here()
  local rec = { scaler = scaler, delay = delayed }
  for i = 1, #opts do
    local s = side.of(opts[i])
    if s.inside then
      err.throw_code('state', op, 'it is called inside another block of optimizer %s; blocks of one optimizer follow one another', side.describe(opts[i]))
    end
    if s.scaled and s.scaled ~= scaler then
      err.throw_code('state', op, 'the gradients of optimizer %s carry the scale of another loss, whose last block had delay_unscale = true; '
        .. 'end with a block of that loss without it first', side.describe(opts[i]))
    end
    rec[i] = open_part(opts[i])
  end
  return region.run(kind, rec, fn, scaler:scale(loss))
end

return M
