--- ZeroRedundancyOptimizer: an optimizer whose state is spread over the ranks.
--     local opt = amp.optim.ZeroRedundancyOptimizer(net:parameters(), 'AdamW', {lr = 1e-3})
-- All elements of all parameters in one row, cut into as many pieces as there are ranks (LAMB, whose step looks at whole
-- parameters: whole ones, by size): each rank keeps the state of its piece, steps it, and sends the result to the others
-- (Rajbhandari et al. 2020, stage 1). Gradients are whole on every rank, so clipping and loss scaling are what they were.
-- Checkpoints hold the plain optimizer's state (consolidated_state_dict), which any number of ranks goes on from.
-- @module amp.optim.zero
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local util = require 'amp.util'
local C, S = core.C, core.S

local OP = 'optim.ZeroRedundancyOptimizer'

local Zero = {}
local known = { SGD = true, Adam = true, AdamW = true, RMSprop = true, Adagrad = true, LAMB = true }
local whole = { LAMB = true }

local function dist() return amp.distributed end

-- -- Who keeps what ----------------------------------------------------------------------------------

local function total_of(list)
  local n = 0
  for i = 1, #list do n = n + list[i]:numel() end
  return n
end

-- Pieces {index, from, to (elements, from 0, to excluded), owner} of all parameters, in their order
local function cut(list, ranks)
  local pieces, each, at = {}, math.max(1, math.ceil(total_of(list) / ranks / 16) * 16), 0
  for i, p in ipairs(list) do
    local n, from = p:numel(), 0
    while from < n do
      local owner = math.floor((at + from) / each)
      local to = math.min(n, (owner + 1) * each - at)
      pieces[#pieces + 1] = { index = i, from = from, to = to, owner = owner + 1 }
      from = to
    end
    at = at + n
  end
  return pieces
end

-- Whole parameters, the largest first to whom has least
local function deal(list, ranks)
  local order, load, pieces = {}, {}, {}
  for i = 1, #list do order[i] = i end
  table.sort(order, function(a, b)
    local x, y = list[a]:numel(), list[b]:numel()
    if x ~= y then return x > y end
    return a < b
  end)
  for r = 1, ranks do load[r] = 0 end
  for _, i in ipairs(order) do
    local least = 1
    for r = 2, ranks do if load[r] < load[least] then least = r end end
    load[least] = load[least] + list[i]:numel()
    pieces[#pieces + 1] = { index = i, from = 0, to = list[i]:numel(), owner = least, whole = true }
  end
  table.sort(pieces, function(a, b) return a.index < b.index end)
  return pieces
end

local function quiet(fn, ...) return amp.no_grad(amp.autocast, { enabled = false }, fn, ...) end

-- The elements of a piece of t, in one row (a view where t has no gaps)
local function part(t, piece)
  return t:detach():reshape(-1):narrow(1, piece.from + 1, piece.to - piece.from)
end

-- -- Making one -----------------------------------------------------------------------------------------

local function groups_of(params)
  if type(params) == 'table' and type(params.parameters) == 'function' then err.throw(OP, 'got a module; give its parameters: net:parameters()') end
  if core.is_ref(params) then params = { params } end
  if type(params) ~= 'table' then err.throw(OP, 'parameters are a list of tensors or of groups, got %s', util.show(params)) end
  if params.params then params = { params } end
  local list = type(params[1]) == 'table' and params[1].params ~= nil and params or { { params = params } }
  for _, g in ipairs(list) do
    local flat = core.is_ref(g.params) and { g.params } or g.params
    if type(flat) ~= 'table' or #flat == 0 then err.throw(OP, 'an empty list of parameters') end
    for i, p in ipairs(flat) do
      if not core.is_ref(p) then err.throw(OP, 'parameter %d must be a tensor, got %s', i, util.show(p)) end
      if not p.is_leaf then err.throw(OP, 'parameter %d was made by an op; only leaves can be optimized: use t:detach()', i) end
    end
  end
  return list
end

local function class_of(what)
  if type(what) == 'table' and type(what.name) == 'string' then what = what.name end
  if type(what) ~= 'string' then err.throw(OP, "argument 2 is the optimizer's name, as 'AdamW', got %s", util.show(what)) end
  for name in pairs(known) do
    if name:lower() == what:lower() then return name end
  end
  local names = util.keys(known)
  err.throw(OP, "there is no optimizer '%s' whose state can be spread%s (there are %s)", what, util.hint(what, names), table.concat(names, ', '))
end

-- What this rank steps for a piece: a leaf that is a view of the parameter where that can be
local function leaf_of(p, piece)
  local leaf = piece.whole and p:detach() or part(p, piece)
  if not piece.whole and not p:is_contiguous() then leaf = leaf:clone() end
  leaf.requires_grad = true
  return leaf
end

local mt = {
  __index = Zero,
  __tostring = function(self)
    return ('ZeroRedundancyOptimizer (%s, %d of %d elements here)'):format(self.name_, self.kept, self.elements)
  end,
}

-- @tparam table params a list of tensors or of groups
-- @tparam string what the optimizer: 'SGD', 'Adam', 'AdamW', 'RMSprop', 'Adagrad', 'LAMB'
-- @tparam ?table o its options
local function new(_, params, what, o)
  if params == nil then err.throw(OP, "parameters are missing: amp.optim.ZeroRedundancyOptimizer(net:parameters(), 'AdamW', {lr = 1e-3})") end
  local class, given = class_of(what), groups_of(params)
  local d = dist()
  if not d.is_initialized() then err.throw_code('state', OP, 'call amp.distributed.init() first') end
  local self = { name_ = class, params = {}, param_groups = {}, mine = {}, kept = 0 }
  local group_at = {}
  for gi, g in ipairs(given) do
    for _, p in ipairs(core.is_ref(g.params) and { g.params } or g.params) do
      self.params[#self.params + 1], group_at[#group_at + 1] = p, gi
    end
  end
  self.pieces = (whole[class] and deal or cut)(self.params, d.world_size())
  local inner = {}
  for gi, g in ipairs(given) do
    inner[gi] = {}
    for k, v in pairs(g) do inner[gi][k] = v end
    inner[gi].params = {}
  end
  for _, piece in ipairs(self.pieces) do
    if piece.owner == d.rank() then
      local gi = group_at[piece.index]
      piece.leaf, piece.group, piece.place = leaf_of(self.params[piece.index], piece), gi, #inner[gi].params + 1
      inner[gi].params[piece.place] = piece.leaf
      self.mine[#self.mine + 1], self.kept = piece, self.kept + piece.to - piece.from
    end
  end
  self.elements = total_of(self.params)
  for gi = 1, #inner do -- a group that this rank has nothing of has options all the same
    table.insert(inner[gi].params, amp.zeros({ 1 }, { requires_grad = true }))
  end
  self.inner = amp.optim[class](inner, o)
  for gi, g in ipairs(self.inner.param_groups) do
    local mine = {}
    for k, v in pairs(g) do mine[k] = v end
    mine.params = {}
    for i, p in ipairs(self.params) do if group_at[i] == gi then mine.params[#mine.params + 1] = p end end
    self.param_groups[gi] = mine
  end
  return setmetatable(self, mt)
end

-- -- Step ---------------------------------------------------------------------------------------------------

-- Options as they stand in our groups, for the step
local function mirror(self)
  for gi, g in ipairs(self.param_groups) do
    local to = self.inner.param_groups[gi]
    for k, v in pairs(g) do if k ~= 'params' then to[k] = v end end
  end
end

-- The parameter may lie elsewhere since (net:to), or have gaps
local function settle(self, piece)
  local p = self.params[piece.index]
  if piece.leaf.dtype ~= p.dtype or piece.leaf.device ~= p.device or (p:is_contiguous() or piece.whole) and piece.leaf.ptr_.storage ~= p.ptr_.storage then
    piece.leaf = leaf_of(p, piece)
    self.inner.param_groups[piece.group].params[piece.place] = piece.leaf
    call.try(OP .. '.step', C.amp_optim_set_param, S, self.inner._handle, piece.group - 1, piece.place - 1, piece.leaf)
  elseif not piece.whole and not p:is_contiguous() then
    quiet(function() piece.leaf:detach():copy_(part(p, piece)) end)
  end
end

-- Each rank's pieces to all: one call a rank and kind of parameter
local function exchange(self)
  local d = dist()
  if d.world_size() == 1 then return end
  local jobs, by = {}, {}
  for _, piece in ipairs(self.pieces) do
    local p = self.params[piece.index]
    local key = ('%d %s %s'):format(piece.owner, p.dtype, p.device)
    local job = by[key]
    if not job then
      job = { owner = piece.owner, n = 0, dtype = p.dtype, device = p.device }
      by[key], jobs[#jobs + 1] = job, job
    end
    job[#job + 1], job.n = piece, job.n + piece.to - piece.from
  end
  for _, job in ipairs(jobs) do
    job.flat = amp.empty({ job.n }, { dtype = job.dtype, device = job.device })
    local at = 1
    for _, piece in ipairs(job) do
      local n = piece.to - piece.from
      if job.owner == d.rank() then job.flat:narrow(1, at, n):copy_(piece.leaf:detach():reshape(-1)) end
      at = at + n
    end
    job.work = d.broadcast(job.flat, { from = job.owner, async = true })
  end
  for _, job in ipairs(jobs) do
    job.work:wait()
    local at = 1
    for _, piece in ipairs(job) do
      local n, p = piece.to - piece.from, self.params[piece.index]
      local from = job.flat:narrow(1, at, n)
      local stepped = job.owner == d.rank() and (piece.whole or p:is_contiguous()) -- where it lies
      if not stepped and p:is_contiguous() then part(p, piece):copy_(from)
      elseif not stepped then
        local flat = p:detach():reshape(-1):clone()
        flat:narrow(1, piece.from + 1, n):copy_(from)
        p:detach():copy_(flat:reshape(p.shape))
      end
      at = at + n
    end
  end
end

--- Update every parameter that has a gradient: each rank its part. All ranks call it.
-- @return self
function Zero:step(closure)
  if closure ~= nil then
    if type(closure) ~= 'function' then err.throw(OP .. '.step', 'takes a function that computes the loss, or nothing; got %s', util.show(closure)) end
    local results = util.pack(closure())
    self:step()
    return unpack(results, 1, results.n)
  end
  require('amp.optim.origin').refuse_scaled_of(OP .. '.step', self)
  mirror(self)
  for _, piece in ipairs(self.mine) do
    settle(self, piece)
    local g = self.params[piece.index].grad
    if g == nil then piece.leaf.grad = nil
    elseif piece.whole then piece.leaf.grad = g:detach()
    else piece.leaf.grad = quiet(part, g, piece) end
  end
  self.inner._rescale = self._rescale or 0
  self.inner:step()
  for _, piece in ipairs(self.mine) do piece.leaf.grad = nil end
  quiet(exchange, self)
  return self
end

--- Gradients of all parameters become nil.
-- @return self
function Zero:clear_grad()
  for _, p in ipairs(self.params) do p.grad = nil end
  return self
end

--- Gradients become nil, or zeros with {set_to_none = false}.
-- @return self
function Zero:zero_grad(o)
  if o == false or type(o) == 'table' and o.set_to_none == false then
    for _, p in ipairs(self.params) do if p.grad ~= nil then p.grad:zero_() end end
    return self
  end
  return self:clear_grad()
end

--- Whether any parameter has a gradient.
function Zero:has_grads()
  for _, p in ipairs(self.params) do if C.amp_grad_defined(p) ~= 0 then return true end end
  return false
end

--- Name for messages.
function Zero:describe() return 'ZeroRedundancyOptimizer of ' .. self.inner:describe() end

-- -- State ---------------------------------------------------------------------------------------------------

-- This rank's state: for each of its pieces names -> tensors, and the step
local function local_state(self)
  local dict, list = self.inner:state_dict(), {}
  for k, piece in ipairs(self.mine) do
    list[k] = dict.state[dict.param_groups[piece.group].params[piece.place]] or false
  end
  return list
end

-- What rank r keeps, on all ranks: a list in the order of its pieces
local function share(self, r, mine)
  local d = dist()
  local meta = {}
  if r == d.rank() then
    for k, s in ipairs(mine) do
      local names, plain = {}, {}
      for name, v in pairs(s or {}) do
        if core.is_ref(v) then names[#names + 1] = { name, v.dtype } else plain[name] = v end
      end
      table.sort(names, function(a, b) return a[1] < b[1] end)
      meta[k] = s and { names = names, plain = plain } or false
    end
  end
  meta = d.broadcast_object(meta, { from = r })
  local out, at = {}, 0
  for _, piece in ipairs(self.pieces) do
    if piece.owner == r then
      at = at + 1
      local m = meta[at]
      local s = m and m.plain or nil
      for _, n in ipairs(m and m.names or {}) do
        local t = r == d.rank() and mine[at][n[1]]:detach():reshape(-1):contiguous() or amp.empty({ piece.to - piece.from }, { dtype = n[2] })
        s[n[1]] = d.broadcast(t, { from = r })
      end
      out[at] = { piece = piece, state = s }
    end
  end
  return out
end

--- The state of the plain optimizer: that of all ranks put together. All ranks call it, and get it.
-- @treturn table {state, param_groups}
function Zero:consolidated_state_dict()
  local d, out = dist(), { state = {}, param_groups = {} }
  local mine, at = local_state(self), 0
  for gi, g in ipairs(self.param_groups) do
    local copy = { params = {} }
    for k, v in pairs(g) do
      local t = type(v)
      if t == 'number' or t == 'boolean' or t == 'string' then copy[k] = v
      elseif k == 'betas' then copy[k] = { v[1], v[2] } end
    end
    for i = 1, #g.params do
      at = at + 1
      copy.params[i] = at
    end
    out.param_groups[gi] = copy
  end
  quiet(function()
    for r = 1, d.world_size() do
      for _, x in ipairs(share(self, r, mine)) do
        if x.state then
          local i = x.piece.index
          local s = out.state[i] or {}
          out.state[i] = s
          for name, v in pairs(x.state) do
            if core.is_ref(v) then
              s[name] = s[name] or amp.zeros(self.params[i].shape, { dtype = v.dtype })
              part(s[name], x.piece):copy_(v)
            else s[name] = v end
          end
        end
      end
    end
  end)
  return out
end

Zero.state_dict = Zero.consolidated_state_dict

--- Go on from the plain optimizer's state, or what consolidated_state_dict gave, of any number of ranks.
-- @return self
function Zero:load_state_dict(dict)
  local op = OP .. '.load_state_dict'
  if type(dict) ~= 'table' or type(dict.state) ~= 'table' or type(dict.param_groups) ~= 'table' then
    err.throw(op, "a state dict has 'state' and 'param_groups', got %s", util.show(dict))
  end
  if #dict.param_groups ~= #self.param_groups then
    err.throw(op, 'the state has %d parameter groups, the optimizer %d', #dict.param_groups, #self.param_groups)
  end
  local index, at = {}, 0 -- of each parameter: its state
  for gi, g in ipairs(self.param_groups) do
    local saved = dict.param_groups[gi]
    if type(saved.params) ~= 'table' or #saved.params ~= #g.params then
      err.throw(op, 'group %d has %d parameters in the state, %d in the optimizer', gi, type(saved.params) == 'table' and #saved.params or 0, #g.params)
    end
    for i = 1, #g.params do
      at = at + 1
      index[at] = dict.state[saved.params[i]]
      for name, v in pairs(index[at] or {}) do
        if core.is_ref(v) and name ~= 'step' and util.shape(v.shape) ~= util.shape(g.params[i].shape) then
          err.throw(op, '%s of parameter %d is of shape %s, the parameter of shape %s', name, at, util.shape(v.shape), util.shape(g.params[i].shape))
        end
      end
    end
  end
  local inner = self.inner:state_dict()
  inner.state = {}
  for gi, saved in ipairs(dict.param_groups) do
    for k, v in pairs(saved) do
      if k ~= 'params' then
        inner.param_groups[gi][k] = v
        self.param_groups[gi][k] = k == 'betas' and { v[1], v[2] } or v
      end
    end
  end
  for _, piece in ipairs(self.mine) do
    local s = index[piece.index]
    if s then
      local mine = {}
      for name, v in pairs(s) do
        mine[name] = core.is_ref(v) and name ~= 'step' and (piece.whole and v or quiet(part, v, piece)) or v
      end
      inner.state[inner.param_groups[piece.group].params[piece.place]] = mine
    end
  end
  self.inner:load_state_dict(inner)
  return self
end

require('amp.core.class').guard(Zero, OP, 'opt', mt)

return setmetatable({ name = 'ZeroRedundancyOptimizer' }, { __call = new })
