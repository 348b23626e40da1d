--- amp.torch7.optim: optimizers as functions, optim.sgd(opfunc, x, config, state); amp's classes under their own names.
--
-- opfunc(x) gives the loss and the gradient. x is the vector of net:getParameters(), or a list of parameters: then
-- opfunc may leave the gradient out, and each parameter's own is taken. State is kept in `state`, or in `config`
-- where that is not given. Each gives x and {loss}, the loss as opfunc gave it.
local amp = require 'amp'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

-- Parameters and gradients as two lists, after a call of opfunc.
local function evaluate(op, opfunc, x)
  if type(opfunc) ~= 'function' then raise(op, 'a function that gives the loss and the gradient expected, got %s', util.show(opfunc)) end
  local list = amp.is_tensor(x) and {x} or x
  if type(list) ~= 'table' or not amp.is_tensor(list[1]) then raise(op, 'a vector or a list of parameters expected, got %s', util.show(x)) end
  local loss, gradient = opfunc(x)
  local grads = {}
  for i, p in ipairs(list) do
    local g
    if amp.is_tensor(x) then g = gradient else g = type(gradient) == 'table' and gradient[i] or p.grad end
    if not amp.is_tensor(g) then
      raise(op, amp.is_tensor(x) and 'opfunc must give the loss and the gradient, a tensor; the gradient is %s' or 'parameter ' .. i .. ' has no gradient (%s)',
        util.show(g))
    end
    grads[i] = g:detach()
  end
  return loss, list, grads
end

-- An optimizer: its rate where none is given, and update(p, g, s, config, rate), s being the state of that parameter (s.t: which step, from 1).
local function define(name, default_rate, update)
  local op = 'torch7.optim.' .. name
  M[name] = function(opfunc, x, config, state)
    config = config or {}
    state = state or config
    local loss, list, grads = evaluate(op, opfunc, x)
    state.evalCounter = state.evalCounter or 0
    local rate = (config.learningRate or default_rate) / (1 + state.evalCounter * (config.learningRateDecay or 0))
    state.buffers = state.buffers or {}
    amp.no_grad(function()
      for i, p in ipairs(list) do
        local s = state.buffers[i] or {t = 0}
        state.buffers[i] = s
        s.t = s.t + 1
        local g = grads[i]
        local decay = config.weightDecay or 0
        if decay ~= 0 then g = g + p:detach() * decay end
        update(p, g, s, config, rate)
      end
    end)
    state.evalCounter = state.evalCounter + 1
    return x, {loss}
  end
end

--- learningRate 1e-3, learningRateDecay, weightDecay, momentum, dampening (= momentum), nesterov
define('sgd', 1e-3, function(p, g, s, c, rate)
  local m = c.momentum or 0
  local damping = c.dampening or m
  if c.nesterov and (m <= 0 or damping ~= 0) then raise('torch7.optim.sgd', 'nesterov needs a momentum above 0 and {dampening = 0}') end
  if m ~= 0 then
    if s.velocity then s.velocity:mul_(m):add_(g, {alpha = 1 - damping}) else s.velocity = g:clone() end
    g = c.nesterov and g + s.velocity * m or s.velocity
  end
  p:add_(g, {alpha = -rate})
end)

--- learningRate 1e-3, learningRateDecay, beta1 0.9, beta2 0.999, epsilon 1e-8, weightDecay
define('adam', 1e-3, function(p, g, s, c, rate)
  local b1, b2 = c.beta1 or 0.9, c.beta2 or 0.999
  s.m = s.m or amp.zeros_like(g)
  s.v = s.v or amp.zeros_like(g)
  s.m:mul_(b1):add_(g, {alpha = 1 - b1})
  s.v:mul_(b2):add_(g * g, {alpha = 1 - b2})
  local step = rate * math.sqrt(1 - b2 ^ s.t) / (1 - b1 ^ s.t)
  p:add_(s.m / (s.v:sqrt() + (c.epsilon or 1e-8)), {alpha = -step})
end)

--- learningRate 1e-3, learningRateDecay, weightDecay
define('adagrad', 1e-3, function(p, g, s, _, rate)
  s.variance = s.variance or amp.zeros_like(g)
  s.variance:add_(g * g)
  p:add_(g / (s.variance:sqrt() + 1e-10), {alpha = -rate})
end)

--- learningRate 1e-2, alpha 0.99, epsilon 1e-8, weightDecay
define('rmsprop', 1e-2, function(p, g, s, c, rate)
  local alpha = c.alpha or 0.99
  s.mean = s.mean or amp.zeros_like(g)
  s.mean:mul_(alpha):add_(g * g, {alpha = 1 - alpha})
  p:add_(g / (s.mean:sqrt() + (c.epsilon or 1e-8)), {alpha = -rate})
end)

--- rho 0.9, eps 1e-6, weightDecay
define('adadelta', 1, function(p, g, s, c)
  local rho, eps = c.rho or 0.9, c.eps or 1e-6
  s.variance = s.variance or amp.zeros_like(g)
  s.delta = s.delta or amp.zeros_like(g)
  s.variance:mul_(rho):add_(g * g, {alpha = 1 - rho})
  local step = g * (s.delta + eps):sqrt() / (s.variance + eps):sqrt()
  s.delta:mul_(rho):add_(step * step, {alpha = 1 - rho})
  p:sub_(step)
end)

-- -- What scripts used besides ---------------------------------------------------------------------------

--- optim.Logger(path): columns of numbers in a text file; see amp.Logger for more.
local Logger = {}
Logger.__index = Logger
function M.Logger(path)
  local self = setmetatable({path = path, columns = {}}, Logger)
  if path then
    local why
    self.file, why = io.open(path, 'w')
    if not self.file then raise('torch7.optim.Logger', "cannot write '%s': %s", path, (why:gsub('^.*: ', ''))) end
  end
  return self
end
function Logger:setNames(names)
  self.names = names
  if self.file then
    self.file:write(table.concat(names, '\t'), '\n')
    self.file:flush()
  end
  return self
end
--- Add a row: values in the order of the names, or by name.
function Logger:add(values)
  if not self.names then self:setNames(util.keys(values)) end
  local row = {}
  for i, name in ipairs(self.names) do
    local v = values[name]
    if v == nil then v = values[i] end
    if amp.is_tensor(v) then v = v:item() end
    row[i] = v == nil and '' or tostring(v)
    self.columns[name] = self.columns[name] or {}
    table.insert(self.columns[name], tonumber(v) or 0 / 0)
  end
  if self.file then
    self.file:write(table.concat(row, '\t'), '\n')
    self.file:flush()
  end
  return self
end
function Logger:style() return self end
--- The columns as a figure of amp.plot, which is also saved beside the file.
function Logger:plot()
  local fig = amp.plot.curves(self.columns)
  if self.path then fig:save(self.path .. '.png') end
  return fig
end

--- optim.ConfusionMatrix(classes): a number of classes or their names.
local Matrix = {}
Matrix.__index = Matrix
function M.ConfusionMatrix(classes)
  local names = type(classes) == 'table' and classes or {}
  local n = type(classes) == 'number' and classes or #names
  if n < 1 then raise('torch7.optim.ConfusionMatrix', 'a number of classes or their names expected, got %s', util.show(classes)) end
  return setmetatable({nclasses = n, classes = names}, Matrix):zero()
end
function Matrix:zero()
  self.mat = amp.zeros(self.nclasses, self.nclasses, {dtype = 'float64'})
  self.totalValid, self.averageValid, self.valids = 0, 0, {}
  return self
end
--- Add one guess (a class or scores) and its class, or a batch of them.
function Matrix:batchAdd(guesses, targets)
  if not amp.is_tensor(targets) then targets = amp.tensor(type(targets) == 'table' and targets or {targets}, {dtype = 'int64'}) end
  if not amp.is_tensor(guesses) then guesses = amp.tensor(type(guesses) == 'table' and guesses or {guesses}, {dtype = 'int64'}) end
  guesses, targets = guesses:detach(), targets:reshape(-1):long()
  if guesses:numel() == targets:numel() * self.nclasses and self.nclasses > 1 then
    guesses = guesses:reshape(targets:numel(), self.nclasses):argmax(2)
  end
  guesses = guesses:reshape(-1):long()
  if guesses:numel() ~= targets:numel() then
    raise('torch7.optim.ConfusionMatrix', '%d guesses for %d classes', guesses:numel(), targets:numel())
  end
  local g, t = guesses:tolist(), targets:tolist()
  for i = 1, #t do
    if g[i] < 1 or g[i] > self.nclasses or t[i] < 1 or t[i] > self.nclasses then
      raise('torch7.optim.ConfusionMatrix', 'class %d (guessed %d) of example %d is not from 1 to %d', t[i], g[i], i, self.nclasses)
    end
    self.mat[t[i]][g[i]] = self.mat[t[i]][g[i]]:item() + 1
  end
  return self
end
Matrix.add = Matrix.batchAdd
function Matrix:updateValids()
  local m, right, total, sum, seen = self.mat:tolist(), 0, 0, 0, 0
  for i = 1, self.nclasses do
    local row = 0
    for j = 1, self.nclasses do row = row + m[i][j] end
    self.valids[i] = row > 0 and m[i][i] / row or 0 / 0
    right, total = right + m[i][i], total + row
    if row > 0 then sum, seen = sum + self.valids[i], seen + 1 end
  end
  self.totalValid, self.averageValid = total > 0 and right / total or 0, seen > 0 and sum / seen or 0
  return self
end
function Matrix:__tostring()
  self:updateValids()
  local m, lines = self.mat:tolist(), {}
  for i = 1, self.nclasses do
    local cells = {}
    for j = 1, self.nclasses do cells[j] = ('%6d'):format(m[i][j]) end
    lines[i] = ('%s   %6.2f%%  %s'):format(table.concat(cells, ' '), self.valids[i] * 100, tostring(self.classes[i] or i))
  end
  lines[#lines + 1] = ('right: %.2f%% of all, %.2f%% of a class on average'):format(self.totalValid * 100, self.averageValid * 100)
  return table.concat(lines, '\n')
end

require('amp.class').guard(Logger, 'torch7.optim.Logger', 'log')
require('amp.class').guard(Matrix, 'torch7.optim.ConfusionMatrix', 'confusion')

return setmetatable(M, {__index = function(_, name) return amp.optim[name] end})
