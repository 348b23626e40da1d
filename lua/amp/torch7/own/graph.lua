--- nngraph on Torch7's own tensors: nodes made by calling modules, nn.gModule over them.
--
--   local x = nn.Identity()()
--   local h = nn.Tanh()(nn.Linear(4, 5)(x))
--   local net = nn.gModule({x}, {h})
-- A node's `inputs` are the nodes before it; a node of split() has the place of its element in the table that its parent gives.
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local is_tensor = core.is_tensor

return function(nn, torch)
  local nngraph, graph = {}, {}
  classes.roots.nngraph, classes.roots.graph = nngraph, graph
  local Node = classes.class('nngraph.Node', nil, nngraph)

  function Node:__init(data)
    self.data = data or {}
    self.data.annotations = self.data.annotations or {}
    self.inputs, self.children = {}, {}
  end
  --- n nodes for the elements of the table that this one gives.
  function Node:split(n)
    local out = {}
    for i = 1, n do
      out[i] = nngraph.Node {selectindex = i}
      out[i].inputs[1] = self
    end
    return unpack(out)
  end
  function Node:annotate(annotations)
    for k, v in pairs(annotations) do self.data.annotations[k] = v end
    return self
  end
  function Node:label() return self.data.annotations.name or (self.data.module and tostring(self.data.module)) or 'node' end

  local function is_node(v) return type(v) == 'table' and torch.typename(v) == 'nngraph.Node' end

  --- module(node, ...): a node of the graph; with tensors, the module's output.
  local plain_call = nn.Module.__call__
  local function connect(self, ...)
    local list, n = {...}, select('#', ...)
    if n == 1 and type(list[1]) == 'table' and not is_node(list[1]) and getmetatable(list[1]) == nil then list = list[1] end
    local node = nngraph.Node {module = self}
    for i, x in ipairs(list) do
      if not is_node(x) then raise('nngraph', 'input %d of %s is %s, a node expected', i, torch.type(self), torch.type(x)) end
      node.inputs[i] = x
    end
    if #node.inputs ~= #list then raise('nngraph', 'an input of %s is nothing', torch.type(self)) end
    return node
  end
  function nn.Module:__call__(first, ...)
    if is_tensor(first) then return plain_call(self, first, ...) end
    if type(first) == 'table' and getmetatable(first) == nil then
      for _, v in pairs(first) do
        if not is_node(v) then return plain_call(self, first, ...) end
      end
    end
    if first == nil and select('#', ...) == 0 then return connect(self) end
    return connect(self, first, ...)
  end
  function nn.Criterion:__call__(...) return nn.ModuleFromCriterion(self)(...) end
  function nn.Module:__unm__() return self() end
  function nn.Module.__sub__(a, b)
    if is_node(a) then return b(a) end
    raise('nngraph', 'a node expected before the -, got %s', torch.type(a))
  end
  function Node.__sub__(prev, next_one) return next_one(prev) end

  --- A criterion as a module of {input, target}.
  local ModuleFromCriterion, Module = classes.class('nn.ModuleFromCriterion', 'nn.Module', nn)
  function ModuleFromCriterion:__init(criterion)
    Module.__init(self)
    self.criterion = criterion
  end
  function ModuleFromCriterion:updateOutput(input)
    self.output = torch.Tensor {self.criterion:updateOutput(input[1], input[2])}
    return self.output
  end
  function ModuleFromCriterion:updateGradInput(input, gradOutput)
    local g = self.criterion:updateGradInput(input[1], input[2]):clone():mul(gradOutput[1])
    self.gradInput = {g, nn.zeros_like(input[2])}
    return self.gradInput
  end

  -- -- gModule ------------------------------------------------------------------------------------------

  local gModule, Container = classes.class('nn.gModule', 'nn.Container', nn)

  -- Nodes in an order in which each comes after its inputs.
  local function ordered(outputs)
    local order, state = {}, {}
    local function visit(node)
      if state[node] == 'done' then return end
      if state[node] == 'open' then raise('nn.gModule', "the graph has a circle at '%s'", node:label()) end
      state[node] = 'open'
      for _, x in ipairs(node.inputs) do visit(x) end
      state[node] = 'done'
      order[#order + 1] = node
    end
    for _, node in ipairs(outputs) do visit(node) end
    return order
  end
  function gModule:__init(inputs, outputs)
    Container.__init(self)
    for what, list in pairs {inputs = inputs, outputs = outputs} do
      if type(list) ~= 'table' or #list == 0 then raise('nn.gModule', 'a list of nodes expected as %s', what) end
      for i, node in ipairs(list) do
        if not is_node(node) then raise('nn.gModule', 'number %d of the %s is %s, a node expected', i, what, torch.type(node)) end
      end
    end
    self.innodes, self.outnodes, self.order = inputs, outputs, ordered(outputs)
    self.nInputs = #inputs
    local place, is_input = {}, {}
    for i, node in ipairs(self.order) do place[node] = i end
    for i, node in ipairs(inputs) do
      if not place[node] then raise('nn.gModule', "input %d ('%s') leads to no output", i, node:label()) end
      if #node.inputs > 0 then raise('nn.gModule', 'input %d has inputs itself', i) end
      is_input[node] = i
    end
    self.input_of = {}
    for i, node in ipairs(self.order) do
      self.input_of[i] = is_input[node] or false
      if #node.inputs == 0 and not is_input[node] and not (node.data.module and node.data.module.parameters and node.data.module:parameters()) then
        raise('nn.gModule', "the node '%s' has no input and is none of the inputs", node:label())
      end
      if node.data.module then self.modules[#self.modules + 1] = node.data.module end
    end
    self.forwardnodes, self.backwardnodes = self.order, {}
    for i = #self.order, 1, -1 do self.backwardnodes[#self.backwardnodes + 1] = self.order[i] end
    self.fg, self.bg = {nodes = self.forwardnodes}, {nodes = self.backwardnodes}
  end
  -- What the module of node i is given.
  local function gather(self, i, input, values)
    local node = self.order[i]
    local at = self.input_of[i]
    if at then return self.nInputs == 1 and input or input[at] end
    if #node.inputs == 0 then return nil end
    if #node.inputs == 1 then return values[node.inputs[1]] end
    local list = {}
    for k, x in ipairs(node.inputs) do list[k] = values[x] end
    return list
  end
  function gModule:updateOutput(input)
    if self.nInputs > 1 and (type(input) ~= 'table' or #input ~= self.nInputs) then
      raise('nn.gModule', 'a table of %d inputs expected, got %s', self.nInputs, type(input) == 'table' and 'one of ' .. #input or torch.type(input))
    end
    if self.nInputs == 1 and type(input) == 'table' and #input == 1 and is_tensor(input[1]) then input = input[1] end
    local values, given = {}, {}
    for i, node in ipairs(self.order) do
      local x = gather(self, i, input, values)
      given[i] = x
      if node.data.selectindex then values[node] = x[node.data.selectindex]
      elseif node.data.module then values[node] = node.data.module:updateOutput(x)
      else values[node] = x end
    end
    self.given = given
    local out = {}
    for i, node in ipairs(self.outnodes) do out[i] = values[node] end
    self.output = #out == 1 and out[1] or out
    return self.output
  end
  -- Gradients from the outputs to the inputs; f(module, input, gradient) gives the gradient in its input.
  local function back(self, gradOutput, f)
    local grads, in_grads = {}, {}
    local function give(node, g, index)
      if g == nil then return end
      if index then
        local table_of = grads[node] or {}
        table_of[index] = table_of[index] and nn.add_into(nn.deep_copy(table_of[index], {}, {}, {}), g) or g
        grads[node] = table_of
      else
        grads[node] = grads[node] and nn.add_into(nn.deep_copy(grads[node], {}, {}, {}), g) or g
      end
    end
    for i, node in ipairs(self.outnodes) do give(node, #self.outnodes == 1 and gradOutput or gradOutput[i]) end
    for i = #self.order, 1, -1 do
      local node, x = self.order[i], self.given[i]
      local g = grads[node]
      if node.data.selectindex then
        give(node.inputs[1], g == nil and nn.zeros_like(x[node.data.selectindex]) or g, node.data.selectindex)
      else
        local module = node.data.module
        if module then
          local out = module.output
          if g == nil then g = nn.zeros_like(out)
          elseif type(out) == 'table' then -- elements that nothing took
            for k, v in pairs(out) do
              if g[k] == nil then g[k] = nn.zeros_like(v) end
            end
          end
          g = f(module, x, g)
        end
        if self.input_of[i] then in_grads[self.input_of[i]] = g end
        if #node.inputs == 1 then give(node.inputs[1], g)
        else
          for k, from in ipairs(node.inputs) do give(from, g[k]) end
        end
      end
    end
    return self.nInputs == 1 and in_grads[1] or in_grads
  end
  function gModule:updateGradInput(_, gradOutput)
    self.gradInput = back(self, gradOutput, function(m, x, g) return m:updateGradInput(x, g) end)
    return self.gradInput
  end
  function gModule:backward(_, gradOutput, scale)
    self.gradInput = back(self, gradOutput, function(m, x, g) return m:backward(x, g, scale) end)
    return self.gradInput
  end
  function gModule:accGradParameters(_, gradOutput, scale)
    back(self, gradOutput, function(m, x, g)
      m:accGradParameters(x, g, scale)
      return m.gradInput
    end)
  end
  function gModule:accUpdateGradParameters(_, gradOutput, lr)
    back(self, gradOutput, function(m, x, g)
      m:accUpdateGradParameters(x, g, lr)
      return m.gradInput
    end)
  end
  function gModule:clearState()
    self.given = nil
    return Container.clearState(self)
  end
  function gModule:__tostring__() return torch.type(self) .. ('(%d inputs, %d modules, %d outputs)'):format(self.nInputs, #self.modules, #self.outnodes) end

  --- The graph in Graphviz's language, into name.dot.
  function graph.dot(g, _, name)
    local lines, ids = {'digraph net {'}, {}
    for i, node in ipairs(g.nodes) do ids[node] = i end
    for i, node in ipairs(g.nodes) do
      lines[#lines + 1] = ('  n%d [label="%s"];'):format(i, node:label():gsub('"', "'"):gsub('\n.*', ''))
      for _, x in ipairs(node.inputs) do lines[#lines + 1] = ('  n%d -> n%d;'):format(ids[x], i) end
    end
    lines[#lines + 1] = '}'
    local text = table.concat(lines, '\n')
    if name then
      local path = name .. '.dot'
      local ok, why = require('amp.io.file').replace(path, function(put) put(text .. '\n') end)
      if not ok then raise('torch7.graph.dot', "cannot write '%s': %s", path, why) end
    end
    return text
  end
  function nngraph.setDebug() end
  function nngraph.annotateNodes()
    -- local variables' names become the names of the nodes that they hold
    for i = 1, math.huge do
      local name, v = debug.getlocal(2, i)
      if not name then break end
      if is_node(v) then v.data.annotations.name = v.data.annotations.name or name end
    end
  end
  return nngraph, graph
end
