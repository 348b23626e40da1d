--- `amp vision predict MODEL.safetensors PICTURE…`: what a detector or a classifier sees in pictures.
-- Status 2: mistakes of use; 1: what a file is not fit for, in a line.
-- @module amp.cli.vision
local util = require 'amp.util'

local M = {}

local usage = [[
usage: amp vision predict MODEL.safetensors PICTURE... [options]
  a detector writes each picture with its boxes (NAME-boxes.png), a classifier says the likeliest classes
  MODEL.safetensors: a graph, as export or amp.graph's save writes it; or weights, with --model
  --model NAME (of amp.vision.models)  --classes N|NAME,NAME,...|FILE of names  --size N  --score S (0.5)  --top K (5)
  --mean M[,M,M] (0.485,0.456,0.406)  --std S[,S,S] (0.229,0.224,0.225)  --out DIR (.)  --device cpu|cuda  --show]]

local known = { model = 'string', classes = 'string', size = 'number', score = 'number', top = 'number', mean = 'string', std = 'string', out = 'string',
  device = 'string', show = 'flag' }

local function say(...) io.stderr:write('amp vision: ', table.concat { ... }, '\n') end

-- Places and options, or nil and a status.
local function read(args)
  local places, o, i = {}, { score = 0.5, top = 5, mean = '0.485,0.456,0.406', std = '0.229,0.224,0.225', out = '.' }, 1
  while i <= #args do
    local a = args[i]
    local kind = known[a:match '^%-%-(%a+)$' or '']
    if a == '-h' or a == '--help' then
      print(usage)
      return nil, 0
    elseif a:sub(1, 2) == '--' and not kind then
      local names = {}
      for k in pairs(known) do names[#names + 1] = '--' .. k end
      say("unknown option '", a, "'", util.hint(a, names))
      return nil, 2
    elseif kind == 'flag' then o[a:sub(3)] = true
    elseif kind then
      i = i + 1
      local v = args[i]
      if kind == 'number' then v = tonumber(v) end
      if v == nil then
        say(a, ' needs a ', kind, args[i] and (", got '" .. args[i] .. "'") or '')
        return nil, 2
      end
      o[a:sub(3)] = v
    else places[#places + 1] = a end
    i = i + 1
  end
  return places, o
end

-- A number of classes, or their names.
local function read_classes(text)
  if not text then return nil end
  if tonumber(text) then return tonumber(text) end
  local names, f = {}, not text:find(',', 1, true) and io.open(text, 'rb')
  local all = f and f:read '*a' or text
  if f then f:close() end
  for name in all:gmatch(f and '[^\r\n]+' or '[^,]+') do names[#names + 1] = name end
  return names
end

local function numbers(name, text)
  local list = {}
  for v in text:gmatch '[^,]+' do list[#list + 1] = tonumber(v) or error(('--%s: %s is no number'):format(name, v), 0) end
  return list
end

-- A function of N x 3 x H x W, and {N, H, W} (nil: any).
local function load(path, o, classes)
  local amp = require 'amp'
  if not o.model then
    local file = amp.io.safetensors.open(path)
    local is_graph = file.metadata['amp.graph'] ~= nil
    file:close()
    if not is_graph then
      error(("'%s' holds weights and no graph: say which network they are of, as in --model resnet50, or export the network"):format(path), 0)
    end
    local g = amp.load_graph(path, { map_location = o.device })
    local shape = require('amp.graph.look').at(g).inputs[1].shape
    local free, i = {}, 0
    for n in shape:gmatch '[^x]+' do -- such as Nx3x512x512
      i = i + 1
      free[i] = tonumber(n)
    end
    return function(x) return amp.no_grad(g.run, g, x) end, free
  end
  local options = { classes = type(classes) == 'table' and #classes or classes }
  if o.model:find '^ssd_512' and o.size then options.side = o.size end
  local net = amp.vision.models[o.model](options)
  net:load_state_dict(amp.io.safetensors.load(path))
  net:eval()
  if o.device then net:to(o.device) end
  return function(x) return amp.no_grad(net, x) end, {}
end

local function size_of(o, free)
  if o.size then return o.size, o.size end
  if free[3] and free[4] then return free[3], free[4] end
  local n = o.model and (o.model:find '512' and 512 or o.model:find '300' and 300) or 224
  return n, n
end

-- Boxes of one picture: a line each, and the picture.
local function detections(picture, path, o, names, found, h, w)
  local amp = require 'amp'
  local ids, scores, boxes = found[1][1]:reshape(-1):float():cpu(), found[2][1]:reshape(-1):float():cpu(), found[3][1]:float():cpu()
  local sx, sy = picture:size(3) / w, picture:size(2) / h
  boxes = boxes * amp.tensor { sx, sy, sx, sy }
  local seen = amp.plot.boxes(picture, boxes, ids, scores, { classes = names, min_score = o.score })
  local stem = path:match '([^/]+)$':gsub('%.%w+$', '')
  local to = ('%s/%s-boxes.png'):format(o.out, stem)
  seen:save(to)
  print(('%s -> %s'):format(path, to))
  for i = 1, ids:numel() do
    local id, s = ids[i]:item(), scores[i]:item()
    if id >= 1 and s >= o.score then
      local b = boxes[i]:tolist()
      print(('  %-16s %.3f  %.0f %.0f %.0f %.0f'):format(names and names[id] or ('%d'):format(id), s, b[1], b[2], b[3], b[4]))
    end
  end
  if o.show then seen:show() end
end

local function classification(path, o, names, scores)
  local p, at = scores:float():softmax(2):topk(math.min(o.top, scores:size(2)), 2)
  p, at = p[1]:tolist(), at[1]:tolist()
  print(path)
  for i = 1, #p do print(('  %-16s %.3f'):format(names and names[at[i] ] or ('%d'):format(at[i]), p[i])) end
end

local function predict(model, pictures, o)
  local amp = require 'amp'
  local T = amp.vision.transforms
  local classes = read_classes(o.classes)
  local names = type(classes) == 'table' and classes or nil
  local f, free = load(model, o, classes)
  local h, w = size_of(o, free)
  local prepare = T.Compose { T.Resize { h, w }, T.ToFloat(), T.Normalize(numbers('mean', o.mean), numbers('std', o.std)) }
  local bad = 0
  for _, path in ipairs(pictures) do
    local ok, why = pcall(function()
      local picture = amp.data.read_image(path, { channels = 3 })
      local x = prepare(picture):unsqueeze(1):expand(free[1] or 1, 3, h, w):contiguous()
      if o.device then x = x:to(o.device) end
      local out = { f(x) }
      if #out >= 3 then detections(picture, path, o, names, out, h, w)
      elseif amp.is_tensor(out[1]) and out[1]:dim() == 2 then classification(path, o, names, out[1])
      else error(("'%s' is neither a detector (ids, scores, boxes) nor a classifier (N x classes)"):format(model), 0) end
    end)
    if not ok then
      bad = bad + 1
      say((tostring(why):gsub('\n.*', '')))
    end
  end
  return bad > 0 and 1 or 0
end

--- Run `amp vision …`; gives the status.
function M.run(args)
  local places, o = read(args)
  if not places then return o end
  if places[1] ~= 'predict' or #places < 3 then
    io.stderr:write(usage, '\n')
    return 2
  end
  local pictures = {}
  for i = 3, #places do pictures[#pictures + 1] = places[i] end
  local ok, status = pcall(predict, places[2], pictures, o)
  if ok then return status end
  say((tostring(status):gsub('\n.*', '')))
  return 1
end

return M
