--- nn.Module on Torch7's own tensors, and the layers made from the definitions in torch7/layers.
--
-- forward records what a definition computes from leaves that share the memory of the input and of the parameters; backward asks
-- amp's autograd for the gradients. The record of a module is kept outside it, so that neither copies nor files hold it.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local definitions = require 'amp.torch7.layers'
local raise = require('amp.error').throw
local is_tensor, amp_of, wrap = core.is_tensor, core.amp_of, core.wrap
local is_amp = amp.is_tensor
local ffi = require 'ffi'
local bit = require 'bit'
local call = require 'amp.core.call'
local engine = require 'amp.autograd.engine'
local library = require 'amp.ffi'
local C, S, ref_t = library.C, library.S, library.ref_t
local istype, band = ffi.istype, bit.band
local function version(h) return tonumber(C.amp_tensor_version(h)) end

-- What autograd is asked here, without the checks of what a script gives.
local LAST_FLOAT, TRACKED = C.AMP_BFLOAT16, C.AMP_T_REQUIRES_GRAD + C.AMP_T_HISTORY
local KEEP = C.AMP_B_RETAIN_GRAPH + C.AMP_B_ALLOW_UNUSED -- the record stays, and what nothing depends on has no gradient
local function same_memory(h) return call.make('detach', C.amp_detach, h) end
local function leaf_of(h)
  local t = same_memory(h)
  call.attempt('requires_grad', C.amp_requires_grad, S, t, 1)
  return t
end
-- What reads n results from an engine; made once, as the compiler takes no new functions.
local readers = setmetatable({}, {__index = function(all, n)
  all[n] = function(e)
    local list = {}
    for i = 1, n do
      local g = call.make('grad', C.amp_backward_result, e, i - 1)
      if g.ptr_ ~= nil then list[i] = g end
    end
    return list
  end
  return all[n]
end})
local function gradients(roots, grads, leaves) return engine.begin('grad', roots, grads, leaves, KEEP, readers[#leaves]) end
local function free(h)
  if h.ptr_ ~= nil then C.amp_release(h) end
end
local function id_of(h) return tonumber(h.ptr_.id) end

return function(nn, torch)
  local Module = classes.class('nn.Module', nil, nn)
  local records = setmetatable({}, {__mode = 'k'})

  function Module:__init()
    self.gradInput = torch.Tensor()
    self.output = torch.Tensor()
    self._type = self.output:type()
  end
  function Module:updateOutput() return self.output end
  function Module:forward(input) return self:updateOutput(input) end
  function Module:updateGradInput() return self.gradInput end
  function Module.accGradParameters() end
  function Module:backward(input, gradOutput, scale)
    scale = scale or 1
    self:updateGradInput(input, gradOutput)
    self:accGradParameters(input, gradOutput, scale)
    return self.gradInput
  end
  function Module:backwardUpdate(input, gradOutput, lr)
    self:updateGradInput(input, gradOutput)
    self:accUpdateGradParameters(input, gradOutput, lr)
    return self.gradInput
  end
  function Module:accUpdateGradParameters(input, gradOutput, lr)
    if self.shared then return self:sharedAccUpdateGradParameters(input, gradOutput, lr) end
    return self:defaultAccUpdateGradParameters(input, gradOutput, lr)
  end
  -- The parameters stand where their gradients are added to.
  function Module:defaultAccUpdateGradParameters(input, gradOutput, lr)
    local gradWeight, gradBias = self.gradWeight, self.gradBias
    self.gradWeight, self.gradBias = self.weight, self.bias
    self:accGradParameters(input, gradOutput, -lr)
    self.gradWeight, self.gradBias = gradWeight, gradBias
  end
  function Module:sharedAccUpdateGradParameters(input, gradOutput, lr)
    if not self:parameters() then return end
    self:zeroGradParameters()
    self:accGradParameters(input, gradOutput, 1)
    self:updateParameters(lr)
  end
  function Module:parameters()
    if self.weight and self.bias then return {self.weight, self.bias}, {self.gradWeight, self.gradBias} end
    if self.weight then return {self.weight}, {self.gradWeight} end
    if self.bias then return {self.bias}, {self.gradBias} end
  end
  function Module:zeroGradParameters()
    local _, grads = self:parameters()
    for _, g in ipairs(grads or {}) do g:zero() end
  end
  function Module:updateParameters(rate)
    local params, grads = self:parameters()
    for i, p in ipairs(params or {}) do p:add(-rate, grads[i]) end
  end
  function Module:training() self.train = true end
  function Module:evaluate() self.train = false end
  function Module.reset() end
  function Module:share(other, ...)
    for _, name in ipairs {...} do
      if self[name] ~= nil then
        self[name]:set(other[name])
        self.shared, other.shared = true, true
      end
    end
    return self
  end
  function Module:clearState() return nn.utils.clear(self, 'output', 'gradInput') end
  function Module:__call__(input, gradOutput)
    self:forward(input)
    if gradOutput == nil then return self.output end
    self:backward(input, gradOutput)
    return self.output, self.gradInput
  end
  function Module:__tostring__() return torch.type(self) end
  function Module:apply(f)
    f(self)
    for _, m in ipairs(self.modules or {}) do m:apply(f) end
  end
  function Module:replace(f)
    local out = f(self)
    for i, m in ipairs(self.modules or {}) do self.modules[i] = m:replace(f) end
    return out
  end
  --- Modules of a class, and the containers that hold them.
  function Module:findModules(name, container)
    local found, holders = {}, {}
    if torch.typename(self) == name then found[1], holders[1] = self, container or self end
    for _, m in ipairs(type(self.modules) == 'table' and self.modules or {}) do
      local f, h = m:findModules(name, self)
      for i = 1, #f do found[#found + 1], holders[#holders + 1] = f[i], h[i] end
    end
    return found, holders
  end
  function Module:listModules()
    local list = {self}
    for _, m in ipairs(self.modules or {}) do
      for _, x in ipairs(m:listModules()) do list[#list + 1] = x end
    end
    return list
  end

  -- -- Files: a module is a table of its fields -------------------------------------------------------

  function Module:write(file)
    local fields = {}
    for k, v in pairs(self) do fields[k] = v end
    file:writeObject(fields)
  end
  function Module:read(file)
    for k, v in pairs(file:readObject()) do self[k] = v end
    local t = type(self._type) == 'string' and core.class_here(core.types, self._type)
    if t then self._type = t.name end
  end

  require 'amp.torch7.own.copies'(nn, torch)

  -- -- Records of what was computed ---------------------------------------------------------------------------

  -- Leaves that share memory with a tree of tensors.
  local function leaves_of(v, list, plain, holders)
    if is_tensor(v) then
      local h = amp_of(v)
      local tracked = not plain and h.ptr_.dtype <= LAST_FLOAT
      local t = tracked and leaf_of(h) or same_memory(h)
      if holders then holders[id_of(t)] = v end
      if tracked then list[#list + 1] = t end
      return t
    end
    if type(v) ~= 'table' then return v end
    local out = {}
    for k, x in pairs(v) do out[k] = leaves_of(x, list, plain, holders) end
    return out
  end
  -- What came out; an input that came out as it was is the same tensor.
  local function detached(v, holders)
    if is_amp(v) then return holders[id_of(v)] or wrap(same_memory(v)) end
    if type(v) ~= 'table' then return v end
    local out = {}
    for k, x in pairs(v) do out[k] = detached(x, holders) end
    return out
  end
  -- Tensors and versions of the memory in a tree, in a row.
  local function versions(v, out)
    if is_tensor(v) then
      local h = amp_of(v)
      out[#out + 1] = version(h) + id_of(h) * 4096
    elseif type(v) == 'table' and getmetatable(v) == nil then
      for _, x in pairs(v) do versions(x, out) end
    end
    return out
  end
  local function same_tree(a, b)
    if rawequal(a, b) then return type(a) ~= 'table' or getmetatable(a) ~= nil or true end
    if is_tensor(a) and is_tensor(b) then
      local x, y = amp_of(a), amp_of(b)
      return id_of(x) == id_of(y) or torch.type(a) == torch.type(b) and a:isSetTo(b)
    end
    if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end
    for k, v in pairs(a) do
      if not same_tree(v, b[k]) then return false end
    end
    for k in pairs(b) do
      if a[k] == nil then return false end
    end
    return true
  end
  local function unchanged(self, r, input)
    if not same_tree(r.input, input) then return false end
    local now = versions(input, {})
    for _, name in ipairs(r.names) do
      if self[name] ~= nil then versions(self[name], now) end
    end
    versions(self.output, now)
    if #now ~= #r.versions then return false end
    for i = 1, #now do
      if now[i] ~= r.versions[i] then return false end
    end
    return true
  end
  -- What a record holds is let go at once, not when the collector comes by.
  local function let_go(v)
    if istype(ref_t, v) then
      free(v)
    elseif type(v) == 'table' then
      for _, x in pairs(v) do let_go(x) end
    end
  end
  local function release(r)
    let_go(r.out)
    let_go(r.x_leaves)
    let_go(r.x)
  end
  -- A module's result in the tensor that held the last one, which changes, as it always did; the old one's memory goes.
  local function reuse(last, now, h)
    if last == nil or not rawequal(last, now) then return wrap(h) end
    local old = amp_of(last)
    if getmetatable(last).__type ~= core.class_of(h) then return wrap(h) end
    core.hold(last, h)
    free(old)
    return last
  end
  local none = {}
  local function record(self, spec, input, ctx)
    local old = records[self]
    local r = {input = input, ctx = ctx, x_leaves = {}, p_leaves = {}, p_ids = {}, names = spec.param_names or none, thin = spec.thin_zeros}
    if type(input) == 'table' and getmetatable(input) == nil then -- what is in the table now
      local shallow = {}
      for k, v in pairs(input) do shallow[k] = v end
      r.input = shallow
    end
    r.holders = {}
    local x = leaves_of(input, r.x_leaves, spec.no_input_grad, r.holders)
    local p = {amp_of = core.unwrap}
    for _, name in ipairs(r.names) do
      local u = self[name]
      if is_tensor(u) then
        local h = amp_of(u)
        local id = id_of(h)
        local t = old and old.p_ids[name] == id and old.p_leaves[name]
        if not t then t = leaf_of(h) end -- a leaf stays as long as its parameter is the same tensor
        p[name], r.p_leaves[name], r.p_ids[name] = t, t, id
      end
    end
    for _, name in ipairs(spec.buffer_names or none) do
      local u = self[name]
      if is_tensor(u) then p[name] = amp_of(u) end
    end
    r.x = x
    if amp.is_grad_enabled() then r.out = spec.compute(self, x, p, ctx) else r.out = amp.enable_grad(spec.compute, self, x, p, ctx) end
    return r
  end
  -- Leaves out of compute's fields what is amp's: it stays with the record.
  local function keep(self, r)
    r.versions = versions(r.input, {})
    for _, name in ipairs(r.names) do
      if self[name] ~= nil then versions(self[name], r.versions) end
    end
    versions(self.output, r.versions)
    records[self] = r
  end

  -- Gradients of a record's outputs in some leaves.
  local function add_root(o, g, outs, grads)
    if istype(ref_t, o) then
      if g ~= nil and band(o.ptr_.flags, TRACKED) ~= 0 then
        g = amp_of(g)
        if g.ptr_.numel ~= o.ptr_.numel then
          raise('torch7.backward', 'a gradient of %s for an output of %s', core.show(core.sizes(g)), core.show(core.sizes(o)))
        end
        if not core.same_shape(g, o) then g = g:reshape(o:size()) end
        if g.ptr_.dtype ~= o.ptr_.dtype then g = g:to(o.dtype) end
        outs[#outs + 1], grads[#grads + 1] = o, g
      end
    elseif type(o) == 'table' then
      for k, v in pairs(o) do add_root(v, g and g[k], outs, grads) end
    end
  end
  local function pull(r, gradOutput, leaves)
    local outs, grads = {}, {}
    add_root(r.out, gradOutput, outs, grads)
    if #outs == 0 or #leaves == 0 then return {} end
    return gradients(outs, grads, leaves)
  end
  -- A tree of gradients like the input's.
  -- `thin`: where nothing came stands one zero, as large as the input by its strides.
  local function refill(v, x, by_id, thin)
    if is_tensor(v) then
      local g = by_id[id_of(x)]
      if g then return wrap(g) end
      if thin and x.ptr_.numel > 0 then
        local ones = {}
        for i = 1, x.ptr_.ndim do ones[i] = 1 end
        return wrap(amp.zeros(ones, {dtype = x.dtype, device = x.device}):expand(x:size()))
      end
      return wrap(amp.zeros_like(x:detach()))
    end
    if type(v) ~= 'table' then return nil end
    local out = {}
    for k, y in pairs(v) do out[k] = refill(y, x[k], by_id, thin) end
    return out
  end

  local function record_for(self, spec, input)
    local r = records[self]
    if r and unchanged(self, r, input) then return r end
    local ctx = r and r.ctx or {train = self.train ~= false}
    ctx.again = r ~= nil
    local new = record(self, spec, input, ctx)
    if r then
      new.own_output, new.own_grad = r.own_output, r.own_grad
      release(r)
    end
    keep(self, new)
    return new
  end
  local function add_gradients(self, r, grads, first, scale)
    local i = first
    for _, name in ipairs(r.names) do
      if r.p_leaves[name] then
        local g, to = grads[i], self['grad' .. name:sub(1, 1):upper() .. name:sub(2)]
        i = i + 1
        if g and to then
          local h = amp_of(to)
          if not core.same_shape(g, h) then g = g:reshape(h:size()) end
          if scale == 1 then h:add_(g) else h:add_(g, {alpha = scale}) end
          free(g)
        end
      end
    end
  end
  local function param_leaves(r, list)
    for _, name in ipairs(r.names) do
      if r.p_leaves[name] then list[#list + 1] = r.p_leaves[name] end
    end
    return list
  end
  local function set_grad_input(self, r, input, grads)
    if not self.gradInput then return end -- a script that needs none sets it to nil
    if is_tensor(input) and grads[1] and #r.x_leaves == 1 then
      self.gradInput = reuse(r.own_grad, self.gradInput, grads[1])
      r.own_grad = self.gradInput
      return
    end
    local by_id = {}
    for i, leaf in ipairs(r.x_leaves) do by_id[id_of(leaf)] = grads[i] end
    self.gradInput = refill(input, r.x, by_id, r.thin)
  end

  --- A class of layers from a definition.
  local function from_definition(name, spec)
    local L, parent = classes.class('nn.' .. name, 'nn.Module', nn)
    L.__name = spec.name
    function L:__init(...)
      parent.__init(self)
      definitions.check_count(spec, select('#', ...))
      if spec.random or spec.buffers then self.train = true end
      spec.init(self, ...)
      if type(self.size) == 'table' then self.size = core.long_storage(self.size) end
      for _, p in ipairs(spec.params and spec.params(self) or none) do
        self[p[1]] = torch.Tensor(unpack(p, 2))
        self['grad' .. p[1]:sub(1, 1):upper() .. p[1]:sub(2)] = torch.Tensor(unpack(p, 2)):zero()
      end
      for _, b in ipairs(spec.buffers and spec.buffers(self) or none) do self[b[1]] = torch.zeros(unpack(b, 2)) end
      if spec.params or spec.buffers then self:reset() end
    end
    function L:reset(stdv)
      if spec.after_reset and not spec.stdv then return spec.after_reset(self, stdv) end
      local s = stdv and stdv * math.sqrt(3) or spec.stdv(self)
      for _, n in ipairs(spec.param_names or none) do
        if is_tensor(self[n]) then self[n]:uniform(-s, s) end
      end
      if spec.after_reset then spec.after_reset(self, stdv) end
    end
    if not (spec.params or spec.buffers) then L.reset = nil end
    function L.new_tensor(_, rows) return torch.Tensor(rows) end
    function L:updateOutput(input)
      if spec.before then spec.before(self, amp_of(input), amp_of(self.weight)) end
      local old = records[self]
      local r = record(self, spec, input, {train = self.train ~= false})
      if is_amp(r.out) then
        local u = r.holders[id_of(r.out)]
        if not u then
          u = reuse(old and old.own_output, self.output, same_memory(r.out))
          r.own_output = u
        end
        self.output = u
      else
        self.output = detached(r.out, r.holders)
      end
      r.own_grad = old and old.own_grad
      r.holders = nil
      if old then release(old) end
      keep(self, r)
      return self.output
    end
    function L:updateGradInput(input, gradOutput)
      local r = record_for(self, spec, input)
      if self.gradInput then set_grad_input(self, r, input, pull(r, gradOutput, r.x_leaves)) end
      return self.gradInput
    end
    if spec.params then
      function L:accGradParameters(input, gradOutput, scale)
        local r = record_for(self, spec, input)
        add_gradients(self, r, pull(r, gradOutput, param_leaves(r, {})), 1, scale or 1)
      end
      function L:backward(input, gradOutput, scale) -- both at once
        local r = record_for(self, spec, input)
        local list = self.gradInput and {unpack(r.x_leaves)} or {}
        local n = #list
        local grads = pull(r, gradOutput, param_leaves(r, list))
        set_grad_input(self, r, input, grads)
        add_gradients(self, r, grads, n + 1, scale or 1)
        return self.gradInput
      end
      function L:parameters()
        local list, grads = {}, {}
        for _, n in ipairs(spec.param_names) do
          if is_tensor(self[n]) then
            list[#list + 1] = self[n]
            grads[#grads + 1] = self['grad' .. n:sub(1, 1):upper() .. n:sub(2)]
          end
        end
        if #list > 0 then return list, grads end
      end
    end
    if spec.after_fields then
      function L:read(file)
        Module.read(self, file)
        spec.after_fields(self)
      end
    end
    function L:__tostring__()
      if spec.repr then return ('%s(%s)'):format(torch.type(self), spec.repr(self)) end
      return torch.type(self)
    end
    for k, f in pairs(spec.methods or none) do L[k] = f end
    for k, v in pairs(spec.fields or none) do L[k] = v end
  end
  local by_hand = {Contiguous = true, FlattenTable = true, PartialLinear = true, CrossEntropyCriterion = true} -- own/composed.lua, own/criteria.lua
  for name, spec in pairs(definitions.layers) do
    if not by_hand[name] then from_definition(name, spec) end
  end
  nn.records = records

  -- -- Criteria ----------------------------------------------------------------------------------------------------

  local Criterion = classes.class('nn.Criterion', nil, nn)
  function Criterion:__init()
    self.gradInput, self.output = torch.Tensor(), 0
  end
  function Criterion.updateOutput() end
  function Criterion:forward(input, target) return self:updateOutput(input, target) end
  function Criterion:backward(input, target) return self:updateGradInput(input, target) end
  function Criterion.updateGradInput() end
  Criterion.clone, Criterion.write, Criterion.read = Module.clone, Module.write, Module.read
  function Criterion:type(name, cache)
    if name == nil then return self._type or torch.getdefaulttensortype() end
    cache = cache or {}
    for k, v in pairs(self) do self[k] = nn.utils.recursiveType(v, name, cache) end
    self._type = name
    return self
  end
  for _, name in ipairs {'float', 'double', 'half', 'cuda'} do Criterion[name] = Module[name] end
  function Criterion:clearState() return nn.utils.clear(self, 'gradInput') end
  function Criterion:__call__(input, target)
    self.output = self:forward(input, target)
    self.gradInput = self:backward(input, target)
    return self.output, self.gradInput
  end
  function Criterion:__tostring__() return torch.type(self) end

  local function loss_record(self, spec, input, target)
    local old = records[self]
    local r = {input = input, target = target, x_leaves = {}, own_grad = old and old.own_grad}
    if type(input) == 'table' then
      r.input = {}
      for k, v in pairs(input) do r.input[k] = v end
    end
    local p = {}
    for _, name in ipairs(spec.tensors or none) do p[name] = core.unwrap(self[name]) end
    r.x = leaves_of(input, r.x_leaves)
    local y = core.unwrap_all(target)
    if amp.is_grad_enabled() then r.out, r.value = spec.compute(self, r.x, y, p)
    else r.out, r.value = amp.enable_grad(spec.compute, self, r.x, y, p) end
    r.versions = versions(target, versions(r.input, {}))
    r.average = self.sizeAverage
    if old then release(old) end
    records[self] = r
    return r
  end
  local function loss_class(name, spec)
    local L, parent = classes.class('nn.' .. name, 'nn.Criterion', nn)
    L.__name = spec.name
    function L:__init(...)
      parent.__init(self)
      definitions.check_count(spec, select('#', ...))
      spec.init(self, ...)
    end
    function L.new_tensor(_, rows) return torch.Tensor(rows) end
    function L:updateOutput(input, target)
      local r = loss_record(self, spec, input, target)
      self.output = r.value or r.out:item()
      return self.output
    end
    function L:updateGradInput(input, target)
      local r = records[self]
      local fine = r and r.average == self.sizeAverage and same_tree(r.input, input) and same_tree(r.target, target)
      if fine then
        local now = versions(target, versions(input, {}))
        for i = 1, #now do fine = fine and now[i] == r.versions[i] end
      end
      if not fine then r = loss_record(self, spec, input, target) end
      local by_id = {}
      if band(r.out.ptr_.flags, TRACKED) ~= 0 then
        local grads = gradients({r.out}, nil, r.x_leaves)
        if is_tensor(input) and grads[1] then
          self.gradInput = reuse(r.own_grad, self.gradInput, grads[1])
          r.own_grad = self.gradInput
          return self.gradInput
        end
        for i, leaf in ipairs(r.x_leaves) do by_id[id_of(leaf)] = grads[i] end
      end
      self.gradInput = refill(input, r.x, by_id)
      return self.gradInput
    end
  end
  for name, spec in pairs(definitions.losses) do
    if not by_hand[name] then loss_class(name, spec) end
  end
end
