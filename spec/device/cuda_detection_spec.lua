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
for i = 1, 2 do
  loss[i] = step(x, targets):item()
  collectgarbage() collectgarbage() -- what only a cache of its own has would be made again
end
wait = true
fails(function() step(x, targets) end, 'captur')
wait = false
loss[3] = step(x, targets):item()
assert(loss[3] < loss[1] and loss[3] > 0, table.concat(loss, ' '))
]])
end)

-- what is launched between the two marks that code writes
local function launches(code)
  local out, list = emulated.child(emulated.head .. code, 'AMP_EMULATOR_TRACE=1'), {}
  for name in out:match('begin\n(.*)end\n'):gmatch 'launch ([^\n]+)' do list[#list + 1] = name end
  return list
end
local plain = emulated.cases(it, pending)

describe('detection on a GPU', function()
  local made = [[
local V = amp.vision.ops
local function boxes(n, scale)
  local a = amp.rand(n, 2) * scale
  return amp.cat({ a, a + amp.rand(n, 2) * scale * 0.4 }, 2)
end
local anchors, prob, loc = boxes(600, 1):unsqueeze(1), amp.randn(2, 4, 600):softmax(2), amp.randn(2, 2400) * 0.5
local ga, gp, gl, gb, gs = anchors:cuda(), prob:cuda(), loc:cuda(), boxes(300, 50):cuda(), amp.rand(300):cuda()
]]
  local counts = {
    { 'the overlaps of all pairs', 1, 'V.box_iou(gb, gb)' },
    { 'suppression, of two groups too', 2, 'require("amp.ops").get "nms_places"(gb, gs, nil, 0.5)' },
    { 'multibox_detection of a choice', 2, 'V.multibox_detection(gp, gl, ga, { nms_topk = 100 })' },
    { 'multibox_detection of all', 3, 'V.multibox_detection(gp, gl, ga)' },
    { 'multibox_target', 1, 'V.multibox_target(ga, labels, gp)' },
  }
  for _, row in ipairs(counts) do
    plain(('%s: %d launches'):format(row[1], row[2]), function()
      local list = launches(made .. 'amp.set_grad_enabled(false)\nlocal labels = amp.tensor({ { { 1, 0, 0, 1, 1 } }, { { 2, 0, 0, 1, 1 } } }):cuda()\n' .. [[
io.stderr:write 'begin\n'
]] .. row[3] .. "\nio.stderr:write 'end\\n'\n")
      assert.equal(row[2], #list, table.concat(list, ', '))
    end)
  end

  case('is that of the CPU: choices, options, what is not there', made .. [[
local function near(a, b, what)
  b = b:cpu()
  local off = (a - b):abs():max():item()
  assert(tostring(a:size()) == tostring(b:size()) and off <= 2e-5, what .. ': ' .. off)
end
prob[{ 1, 2, 3 }] = 0 / 0
gp = prob:cuda()
for i, o in ipairs { {}, { nms_topk = 100 }, { nms_topk = 1 }, { nms_topk = 299, force_suppress = true }, { nms_threshold = -1 }, { threshold = 2 },
  { clip = false, nms_threshold = 0.2, threshold = 0.4 } } do
  near(V.multibox_detection(prob, loc, anchors, o), V.multibox_detection(gp, gl, ga, o), 'multibox_detection ' .. i)
end
local net = amp.vision.models.ssd_512_resnet50_v1 { classes = 3, width = 1, side = 64 }:eval()
for i, o in ipairs { {}, { nms_topk = 7 }, { post_nms = 300, nms_topk = 300 }, { nms_thresh = 0 }, { valid_thresh = 0.6 } } do
  net:set_nms(o)
  local s, l = amp.randn(2, 600, 4) * 2, amp.randn(2, 600, 4) * 0.5
  local want, got = { net:detect(s, l, anchors, 30, 40) }, { net:detect(s:cuda(), l:cuda(), ga, 30, 40) }
  for k = 1, 3 do near(want[k], got[k], 'detect ' .. i) end
end
for _, n in ipairs { 1, 64, 65, 300 } do
  local b, s, k = boxes(n, 50), (amp.rand(n) * 10):floor(), amp.randint(-1, 2, { n })
  if n > 60 then b[5]:fill_(0 / 0) s[7] = 0 / 0 end
  assert(V.nms(b, s, 0.3):equal(V.nms(b:cuda(), s:cuda(), 0.3):cpu()), 'nms ' .. n)
  assert(V.batched_nms(b, s, k, 0.3):equal(V.batched_nms(b:cuda(), s:cuda(), k:cuda(), 0.3):cpu()), 'batched_nms ' .. n)
end
local one, two = boxes(9, 9), boxes(5, 9)
near(V.box_iou(one, two), V.box_iou(one:cuda(), two:cuda()), 'box_iou')
]])
end)
