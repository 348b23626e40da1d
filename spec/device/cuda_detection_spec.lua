--- A detector's training step on the emulated GPU: targets, hard negatives and losses are captured with the rest, so
-- nothing in the step waits for the GPU (a captured step that waits is an error), and steps are those of eager calls.
local emulated = require 'spec.device.emulated'

local case = emulated.cases(it, pending, emulated.head .. [[
local vision = amp.vision
local labels = amp.tensor { { { 1, 0.1, 0.1, 0.7, 0.8 }, { 2, 0.6, 0.1, 0.9, 0.5 } }, { { 2, 0.5, 0.5, 0.9, 0.9 }, { -1, -1, -1, -1, -1 } } }
local targets, boxes = labels:to 'cuda', vision.ops
local mbox_loss = vision.SSDMultiBoxLoss()
local function loss_of(net, x, t)
  local cls, box, anchors = net(x)
  local box_t, _, cls_t = boxes.multibox_target(anchors, t, cls:transpose(2, 3))
  return mbox_loss(cls, box, cls_t, box_t)[1]:sum()
end
]])

describe('a captured step of a detector', function()
  case('is the eager one, with targets that change and a loss scale', [[
local SSD = require 'amp.vision.models.ssd'
local Small = SSD:extend 'Small'
function Small:init()
  self:set_anchors(32, { sizes = { 8, 16, 28 }, ratios = { { 1, 2, 0.5 }, { 1, 2, 0.5 } }, steps = { 8, 16 } }, { classes = 2 })
  self.one, self.two = nn.Conv2d(3, 4, 3, { stride = 8, padding = 1 }), nn.Conv2d(4, 4, 3, { stride = 2, padding = 1 })
  self.cls, self.box = self:predictors { 4, 4 }
end
function Small:forward(x)
  local a = self.one(x):relu()
  return self:finish({ a, self.two(a):relu() }, x, self.cls, self.box)
end
local function run(through, dtype)
  amp.manual_seed(2)
  local net, out = Small():to 'cuda', {}
  local opt, scaler = optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9 }), amp.GradScaler { init_scale = 64, enabled = dtype ~= nil }
  local step = through(function(x, t)
    local loss = dtype and amp.autocast({ device = 'cuda', dtype = dtype }, loss_of, net, x, t) or loss_of(net, x, t)
    scaler:scale(loss):backward()
    scaler:step(opt):update()
    opt:clear_grad()
    return loss
  end)
  for i = 1, 6 do
    out[i] = step(randn(2, 3, 32, 32), i % 2 == 0 and targets or targets:flip(1)):item()
    if i == 5 then targets:select(2, 1):fill_(-1) end -- no boxes in one picture, few in the other
  end
  targets:copy_(labels)
  for _, p in net:named_parameters() do out[#out + 1] = p:detach():double():sum():item() end
  return out
end
for _, dtype in ipairs { false, 'float16' } do
  local want, got = run(function(f) return f end, dtype or nil), run(amp.capture, dtype or nil)
  assert(want[1] > 1 and want[1] ~= want[2])
  for i = 1, #want do
    assert(math.abs(want[i] - got[i]) <= (dtype and 2e-2 or 1e-4) * (1 + math.abs(want[i])), ('%d: %g, not %g'):format(i, got[i], want[i]))
  end
end
]])
  case('of SSD on ResNet-50 v1 is captured, and a wait in it is an error', [[
amp.manual_seed(1)
local net = vision.models.ssd_512_resnet50_v1 { classes = 2, width = 1, side = 64 }:to 'cuda'
local opt, wait = optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9 }), false
local step = amp.capture(function(x, t)
  local loss = loss_of(net, x, t)
  if wait then loss:item() end
  loss:backward()
  opt:step()
  opt:clear_grad()
  return loss
end)
local x, loss = randn(2, 3, 64, 64), {}
for i = 1, 2 do loss[i] = step(x, targets):item() end
wait = true
fails(function() step(x, targets) end, 'captur')
wait = false
loss[3] = step(x, targets):item()
assert(loss[3] < loss[1] and loss[3] > 0, table.concat(loss, ' '))
]])
end)
