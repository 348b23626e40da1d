--- `amp chat DIR` and `amp embed DIR FILE`: published text models at the command line.
-- Status 2: mistakes of use; 1: what the folder or the file is not fit for, in a line.
-- @module amp.cli.text
local util = require 'amp.util'

local M = {}

local function say(...) io.stderr:write(...) io.stderr:write '\n' end

local usage = {
  chat = [[
usage: amp chat DIR [options]       a text model goes on with what you type, line by line
  --max-new-tokens N (100)  --temperature T (0.8; 0: the likeliest)  --top-k N (50)  --top-p P  --repetition-penalty P  --seed N
  --template TEXT (%s)      what becomes of a line: %s is the line, \n a new line
  --device cpu|cuda  --dtype float32|bfloat16|float16]],
  embed = [[
usage: amp embed DIR FILE [options]  a vector for each line of FILE (-: standard input), a line each
  --output PATH.npy|.safetensors     write them there instead
  --batch-size N (32)  --device cpu|cuda  --dtype float32|bfloat16|float16]],
}

local known = {
  chat = {
    max_new_tokens = 'number', temperature = 'number', top_k = 'number', top_p = 'number', repetition_penalty = 'number', seed = 'number', template = 'string',
    device = 'string', dtype = 'string',
  },
  embed = { output = 'string', batch_size = 'number', device = 'string', dtype = 'string' },
}

-- Places and options, or nil and a status.
local function read(command, args)
  local places, o, i = {}, {}, 1
  while i <= #args do
    local a = args[i]
    if a == '-h' or a == '--help' then
      print(usage[command])
      return nil, 0
    elseif a:sub(1, 2) == '--' then
      local name = a:sub(3):gsub('-', '_')
      local kind = known[command][name]
      if not kind then
        local names = {}
        for k in pairs(known[command]) do names[#names + 1] = '--' .. k:gsub('_', '-') end
        say('amp ', command, ": unknown option '", a, "'", util.hint(a, names), '\n', usage[command])
        return nil, 2
      end
      i = i + 1
      local v = args[i]
      if kind == 'number' then v = tonumber(v) end
      if v == nil then
        say('amp ', command, ': ', a, ' needs a ', kind, args[i] and (", got '" .. args[i] .. "'") or '')
        return nil, 2
      end
      o[name] = v
    else
      places[#places + 1] = a
    end
    i = i + 1
  end
  return places, o
end

local function loading(o) return { device = o.device, dtype = o.dtype } end

-- fn's status; an error is one line.
local function guarded(command, fn)
  local ok, status = pcall(fn)
  if ok then return status or 0 end
  say('amp ', command, ': ', (tostring(status):gsub('\n.*', '')))
  return 1
end

-- Ids that end an answer: of generation_config.json, else of config.json.
local function ends(dir, model)
  local config = require 'amp.text.models.config'
  local path = dir .. '/generation_config.json'
  local e = config.exists(path) and config.json('amp chat', path).eos_token_id or nil
  if type(e) ~= 'number' and type(e) ~= 'table' then e = model.config.eos_token_id end
  local list, most = {}, model.config.vocab_size
  for _, id in ipairs(type(e) == 'table' and e or { e }) do
    if type(id) == 'number' and id + 1 <= most then list[#list + 1] = id + 1 end
  end
  return #list > 0 and list or nil
end

-- One answer after another, until the input ends.
local function talk(model, tok, eos, o)
  local template = (o.template or '%s'):gsub('\\n', '\n')
  local history = {}
  local most = model.config_positions
  local count = math.min(o.max_new_tokens or 100, math.floor(most / 2))
  while true do
    io.stdout:write '> '
    io.stdout:flush()
    local line = io.read '*l'
    if not line then break end
    if line ~= '' then
      local ids = tok:encode((template:gsub('%%s', function() return line end)))
      for _, id in ipairs(type(ids) == 'table' and ids or ids:tolist()) do history[#history + 1] = id end
      local first = math.max(1, #history - (most - count) + 1) -- what the context has room for
      local prompt = {}
      for i = first, #history do prompt[i - first + 1] = history[i] end
      local all = model:generate(prompt, {
        max_new_tokens = count, temperature = o.temperature or 0.8, top_k = o.top_k or 50, top_p = o.top_p, repetition_penalty = o.repetition_penalty,
        seed = o.seed, eos = eos, on_token = function(piece)
          io.stdout:write(piece)
          io.stdout:flush()
        end,
      }):tolist()
      for i = #prompt + 1, #all do history[#history + 1] = all[i] end
      io.stdout:write '\n'
    end
  end
  io.stdout:write '\n'
end

--- amp chat DIR
function M.chat(args)
  local places, o = read('chat', args)
  if not places then return o end
  if #places ~= 1 then
    say(usage.chat)
    return 2
  end
  return guarded('chat', function()
    local dir = places[1]
    local model = require('amp.text.models').from_pretrained(dir, loading(o))
    if type(model.generate) ~= 'function' then error(("'%s' is a model that reads texts and writes none; amp embed takes it"):format(dir), 0) end
    local tok = model:get_tokenizer()
    if not tok then error(("there is no tokenizer.json in '%s'"):format(dir), 0) end
    talk(model, tok, ends(dir, model), o)
  end)
end

local function lines_of(path)
  local f, why = io.stdin, nil
  if path ~= '-' then f, why = io.open(path, 'r') end
  if not f then error('cannot read ' .. why, 0) end
  local lines = {}
  for line in f:lines() do lines[#lines + 1] = line end
  if f ~= io.stdin then f:close() end
  return lines
end

local function show(vectors)
  for _, row in ipairs(vectors:tolist()) do
    for i = 1, #row do row[i] = ('%.7g'):format(row[i]) end
    print(table.concat(row, ' '))
  end
end

--- amp embed DIR FILE
function M.embed(args)
  local places, o = read('embed', args)
  if not places then return o end
  if #places ~= 2 or o.output and not (o.output:match '%.npy$' or o.output:match '%.safetensors$') then
    say(usage.embed)
    return 2
  end
  return guarded('embed', function()
    local amp = require 'amp'
    local lines = lines_of(places[2])
    local encoder = require('amp.text.models').SentenceEncoder.from_pretrained(places[1], loading(o))
    local vectors = encoder:encode(lines, { batch_size = o.batch_size }):cpu()
    if not o.output then show(vectors)
    elseif o.output:match '%.npy$' then amp.io.save_npy(o.output, vectors)
    else amp.io.safetensors.save(o.output, { embeddings = vectors }) end
  end)
end

return M
