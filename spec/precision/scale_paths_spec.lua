--- One scripted sequence of overflows in every gear and face: exactly the expected scales, parameters that only clean steps
-- move, and the same from every step on when all is saved there and loaded into what was made anew.
local amp = require 'amp'
local INF = math.huge

-- What an iteration's gradient is; infinite: an overflow.
local script = { 1, INF, 1, 1, INF, INF, 1, 1, 1, INF, 1, 2 }

-- The scales after each iteration, and the parameter: it starts at 64, and a clean step takes the gradient away.
local function expected(o)
  local scale, clean, p, out = o.scale, o.clean or 0, 64, {}
  for i, g in ipairs(script) do
    if g == INF then
      scale, clean = math.max(scale / 2, o.min or 0), 0
    else
      p, clean = p - g, clean + 1
      if clean >= o.interval then scale, clean = math.min(scale * 2, o.max or INF), 0 end
    end
    out[i] = { scale, p }
  end
  return out
end

local Net = amp.nn.Module:extend 'Net'
function Net:init() self.w = amp.tensor({ 64 }, { requires_grad = true }) end
function Net:forward(x) return self.w * x end

-- name -> {expected = options, new = function (saved or nil) that gives step(g), scale(), parameter(), save()}
local faces = {}

local function model(saved)
  local net = Net()
  local opt = amp.optim.SGD(net:parameters(), { lr = 1 })
  return net, opt, function() -- loads what was saved, once the face has seen them
    if not saved then return end
    net:load_state_dict(saved.net)
    if not saved.trainer then opt:load_state_dict(saved.opt) end
  end
end

-- Tables of what state dicts hold, copied: those of the run go on changing.
local function copy(v)
  if type(v) == 'cdata' then return v:clone() end
  if type(v) ~= 'table' then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = copy(x) end
  return t
end

local function loss_of(net, g) return net(amp.tensor { g }):float():sum() end
local function back(s) s:backward() end

local gears = {
  ['per optimizer'] = function(s, net, opt)
    return function(g)
      s:scale(loss_of(net, g)):backward()
      s:step(opt):update()
      opt:clear_grad()
    end
  end,
  ['per optimizer, unscale_'] = function(s, net, opt)
    return function(g)
      s:scale(loss_of(net, g)):backward()
      s:unscale_(opt)
      amp.nn.utils.clip_grad_norm_(net:parameters(), 1e6)
      s:step(opt):update()
      opt:clear_grad()
    end
  end,
  automatic = function(s, net, opt)
    local gm = amp.GradManager():attach(net:parameters())
    return function(g)
      gm:record(function() s:backward(gm, loss_of(net, g)) end)
      opt:step():clear_grad()
    end
  end,
  manual = function(s, net, opt)
    local gm = amp.GradManager():attach(net:parameters())
    return function(g)
      gm:record(function() gm:backward(loss_of(net, g), { dy = s:scale_tensor() }) end)
      s:unscale(gm:attached_tensors())
      s:update()
      opt:step():clear_grad()
    end
  end,
}
for name, gear in pairs(gears) do
  faces[name] = { expected = { scale = 8, interval = 2, max = 16, min = 2 }, new = function(saved)
    local net, opt, load = model(saved)
    local s = amp.GradScaler { init_scale = 8, growth_interval = 2, max_scale = 16, min_scale = 2 }
    load()
    if saved then s:load_state_dict(saved.scaler) end
    return gear(s, net, opt), function() return s:get_scale() end, function() return net.w:item() end, function()
      return { net = net:state_dict(), opt = opt:state_dict(), scaler = s:state_dict() }
    end
  end }
end

-- Levels and handles grow after 2000 clean blocks: they go on from one short of it.
local late = { loss_scale = 1024, unskipped = 1999 }

for _, level in ipairs { 'O1', 'O2', 'O3' } do
  for losses = 1, 2 do
    faces[('%s, %d losses'):format(level, losses)] = { expected = { scale = 1024, clean = 1999, interval = 2000, max = 2048 }, new = function(saved)
      local net, opt, load = model(saved)
      amp.initialize(net, opt, { opt_level = level, loss_scale = 'dynamic', max_loss_scale = 2048, num_losses = losses, verbosity = 0 })
      load()
      amp.load_state_dict(saved and saved.amp or { loss_scaler1 = late, loss_scaler2 = losses == 2 and late or nil })
      return function(g)
        for i = 1, losses do amp.scale_loss(loss_of(net, g) / losses, opt, { loss_id = i }, back) end
        opt:step():zero_grad()
      end, function() return amp.state_dict()['loss_scaler' .. losses].loss_scale end, function() return amp.master_params(opt)[1]:item() end,
        function() return { net = net:state_dict(), opt = opt:state_dict(), amp = amp.state_dict() } end
    end }
  end
end

faces.handle = { expected = { scale = 1024, clean = 1999, interval = 2000 }, new = function(saved)
  local net, opt, load = model(saved)
  local handle = amp.init()
  load()
  amp.load_state_dict(saved and saved.amp or { loss_scaler1 = late })
  return function(g)
    handle:scale_loss(loss_of(net, g), opt, back)
    opt:step():zero_grad()
  end, function() return amp.state_dict().loss_scaler1.loss_scale end, function() return net.w:item() end,
    function() return { net = net:state_dict(), opt = opt:state_dict(), amp = amp.state_dict() } end
end }

faces.wrapper = { expected = { scale = 1024, clean = 1999, interval = 2000 }, new = function(saved)
  local net, opt, load = model(saved)
  opt = amp.init():wrap_optimizer(opt, { num_loss = 2 })
  load()
  amp.load_state_dict(saved and saved.amp or { loss_scaler1 = late, loss_scaler2 = late })
  return function(g)
    for _ = 1, 2 do opt:scale_loss(loss_of(net, g) / 2, back) end
    opt:step():zero_grad()
  end, function() return amp.state_dict().loss_scaler2.loss_scale end, function() return net.w:item() end,
    function() return { net = net:state_dict(), opt = opt:state_dict(), amp = amp.state_dict() } end
end }

faces.trainer = { expected = { scale = 65536, interval = 2000 }, new = function(saved)
  local net, _, load = model(saved)
  local trainer = amp.init_trainer(amp.optim.Trainer(net:parameters(), 'sgd', { lr = 1 }))
  load()
  if saved then
    trainer:load_states(saved.trainer)
    os.remove(saved.trainer)
  end
  return function(g)
    amp.scale_loss(loss_of(net, g) * 4, trainer, back)
    trainer:step(4)
  end, function() return trainer.loss_scale end, function() return net.w:item() end, function()
    local path = os.tmpname()
    trainer:save_states(path)
    return { net = net:state_dict(), trainer = path }
  end
end }

local names = {}
for name in pairs(faces) do names[#names + 1] = name end
table.sort(names)

describe('a scripted sequence of overflows', function()
  after_each(amp.deactivate)
  for _, name in ipairs(names) do
    it('gives the expected scales and steps, resumed at every step as well: ' .. name, function()
      local face = faces[name]
      local want = expected(face.expected)
      local saved = {}
      local step, scale, parameter, save = face.new()
      for i, g in ipairs(script) do
        step(g)
        assert.same(want[i], { scale(), parameter() }, ('step %d'):format(i))
        saved[i] = copy(save())
      end
      amp.deactivate()
      for k = 1, #script - 1 do
        step, scale, parameter = face.new(saved[k])
        for i = k + 1, #script do
          step(script[i])
          assert.same(want[i], { scale(), parameter() }, ('resumed after %d, step %d'):format(k, i))
        end
        amp.deactivate()
      end
      if saved[#script].trainer then os.remove(saved[#script].trainer) end
    end)
  end
end)
