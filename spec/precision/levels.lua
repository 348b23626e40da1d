--- What the specs of levels share: small networks, levels entered and left, what was printed.
local amp = require 'amp'
local nn = amp.nn

-- What fn writes to the log, a list of lines.
local function logged(fn)
  local lines, old = {}, rawget(amp, 'write_log')
  amp.write_log = function(line) lines[#lines + 1] = line end
  local ok, e = pcall(fn)
  amp.write_log = old
  if not ok then error(e, 0) end
  return lines
end

local function back(s) s:backward() end
local function dtypes(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = t.dtype end
  return table.concat(out, ' ')
end

local function mlp(bn)
  amp.manual_seed(3)
  return nn.Sequential(nn.Linear(4, 8), bn or nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
end

local function sgd(list, lr) return amp.optim.SGD(list, { lr = lr or 1 }) end

-- A module of one weight of ones: w * x; and with two.
local One = nn.Module:extend 'One'
function One:init(n) self.w = amp.ones(n or 2, { requires_grad = true }) end
function One:forward(x) return self.w * x end

local function init(models, opts, o)
  o = o or {}
  o.verbosity = o.verbosity or 0
  return amp.initialize(models, opts, o)
end

local Bag = nn.Module:extend 'Bag'

local function levels(fn)
  for _, level in ipairs { 'O0', 'O1', 'O2', 'O3' } do
    fn(level)
    amp.deactivate()
  end
end

local function scale(i) return amp.state_dict()['loss_scaler' .. (i or 1)].loss_scale end

return { logged = logged, back = back, dtypes = dtypes, mlp = mlp, sgd = sgd, One = One, init = init, Bag = Bag, levels = levels, scale = scale }
