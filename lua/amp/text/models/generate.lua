--- model:generate: texts that go on, token by token, with cached keys and values.
--
-- Prompts of several lengths stand flush right in one batch: all of them take a step at once, at the same place of the cache; what
-- is left of a prompt is never seen, and positions count from the prompt's first token. On a CPU a step attends over what the cache
-- holds so far. On a GPU (`fixed`) it attends over the whole cache under a mask, writes where a counter on the device says and
-- moves that on by itself, so that a step is the same work each time and is captured; the host reads a token only where it
-- must be told (on_token, eos).
-- @module amp.text.models.generate
local amp = require 'amp'
local Cache = require 'amp.text.models.cache'
local err = require 'amp.error'
local options = require 'amp.options'
local sampling = require 'amp.text.models.sampling'
local stream = require 'amp.text.models.stream'
local util = require 'amp.util'

local M = {}

local known = { 'max_new_tokens', 'temperature', 'top_k', 'top_p', 'repetition_penalty', 'eos', 'seed', 'on_token' }
local defaults = { temperature = 1 }

-- -- Arguments ----------------------------------------------------------------------------------------

local function list_of(op, t, what)
  if not amp.is_tensor(t) then return t end
  if not t.dtype:match 'int' then err.throw(op, '%s is a tensor of %s; ids are integers', what, t.dtype) end
  return t:tolist()
end

-- Prompts as lists of ids; `form`: 'vector', 'matrix' or 'list' (of several).
local function prompts_of(op, ids)
  if amp.is_tensor(ids) then
    if ids:dim() > 2 or ids:dim() == 0 then err.throw(op, 'ids are a vector, or prompts x length, got shape %s', util.shape(ids.shape)) end
    local list = list_of(op, ids, 'ids')
    if ids:dim() == 1 then return { list }, 'vector' end
    return list, 'matrix'
  end
  if type(ids) ~= 'table' then err.throw(op, 'ids are a list, a tensor or a list of several prompts, got %s', util.show(ids)) end
  if type(ids[1]) == 'table' or amp.is_tensor(ids[1]) then
    local out = {}
    for i = 1, #ids do
      local row = list_of(op, ids[i], 'prompt ' .. i)
      if type(row) ~= 'table' then err.throw(op, 'prompt %d is %s, a list of ids is expected', i, util.show(row)) end
      out[i] = type(row[1]) == 'table' and row[1] or row
    end
    return out, 'list'
  end
  return { ids }, 'vector'
end

local function check_prompts(op, prompts, vocabulary)
  if #prompts == 0 then err.throw(op, 'there are no prompts') end
  for r, row in ipairs(prompts) do
    local name = #prompts > 1 and (' of prompt %d'):format(r) or ''
    if #row == 0 then err.throw(op, 'there are no ids%s: a prompt has one at least', #prompts > 1 and (' in prompt %d'):format(r) or '') end
    for i = 1, #row do
      local id = row[i]
      if type(id) ~= 'number' or id % 1 ~= 0 then err.throw(op, 'id %d%s is %s, an integer is expected', i, name, util.show(id)) end
      if id < 1 or id > vocabulary then
        err.throw(op, 'id %d%s is %d, out of range: ids count from 1 to %d%s', i, name, id, vocabulary,
          id == 0 and "; published ids count from 0: add 1, as amp's tokenizers do" or '')
      end
    end
  end
end

local function check_numbers(op, o)
  if o.max_new_tokens ~= nil then options.integer(op, 'max_new_tokens', o.max_new_tokens, 0) end
  options.number(op, 'temperature', o.temperature, 0)
  if o.temperature == math.huge then err.throw(op, 'temperature must be finite') end
  if o.top_k == 0 then o.top_k = nil end
  if o.top_k ~= nil then options.integer(op, 'top_k', o.top_k, 1) end
  if o.top_p ~= nil then options.number(op, 'top_p', o.top_p, 0, 1) end
  if o.repetition_penalty ~= nil then
    options.number(op, 'repetition_penalty', o.repetition_penalty, 0)
    if o.repetition_penalty == 0 then err.throw(op, 'repetition_penalty must be above 0') end
    if o.repetition_penalty == 1 then o.repetition_penalty = nil end
  end
  if o.seed ~= nil then options.integer(op, 'seed', o.seed) end
  if o.on_token ~= nil and type(o.on_token) ~= 'function' then err.throw(op, 'on_token is a function(piece), got %s', util.show(o.on_token)) end
end

-- eos as a list of ids.
local function eos_of(op, eos, vocabulary)
  if eos == nil then return {} end
  local list = type(eos) == 'table' and eos or { eos }
  for i = 1, #list do
    if type(list[i]) ~= 'number' or list[i] % 1 ~= 0 or list[i] < 1 or list[i] > vocabulary then
      err.throw(op, 'eos is an id from 1 to %d, or a list of them, got %s', vocabulary, util.show(list[i]))
    end
  end
  return list
end

local function count_new(op, model, o, longest)
  model:check_length(op, longest)
  local most, n = model.config_positions, o.max_new_tokens
  if model.unlimited then return n or 20 end
  if not n then return math.min(20, most - longest) end
  if longest + n > most then
    err.throw(op, 'a prompt of %d ids and max_new_tokens = %d are more than the context of %d (%s of the config): at most %d new ones fit',
      longest, n, most, model.position_option, most - longest)
  end
  return n
end

-- -- State ------------------------------------------------------------------------------------------------

local function int_tensor(v, device) return amp.tensor(v, { dtype = 'int64', device = device }) end

-- Prompts flush right in a matrix, and how much is left of each.
local function flush_right(prompts, longest)
  local rows, left, ragged = {}, {}, false
  for r, row in ipairs(prompts) do
    left[r] = longest - #row
    ragged = ragged or left[r] > 0
    local out = {}
    for i = 1, longest do out[i] = row[i - left[r]] or 1 end
    rows[r] = out
  end
  return rows, left, ragged
end

-- What a run of steps works on.
local function begin(model, prompts, o, count, fixed)
  local device, batch, longest = model:device_of(), #prompts, 0
  for _, row in ipairs(prompts) do longest = math.max(longest, #row) end
  local rows, left, ragged = flush_right(prompts, longest)
  local layers, heads, size = model:cache_sizes()
  local length = longest + count
  local s = {
    model = model, options = o, batch = batch, longest = longest, count = count, device = device, fixed = fixed, ragged = ragged,
    ids = int_tensor(rows, device),
    cache = Cache.new(layers, batch, heads, length, size, model:dtype_of(), device, fixed),
  }
  if ragged then
    s.left = int_tensor(left, device):unsqueeze(2)
    s.visible = amp.arange(1, length + 1, { dtype = 'int64', device = device }):unsqueeze(1):gt(s.left) -- batch x length
  end
  if o.repetition_penalty then
    s.seen = amp.zeros({ batch, model.config.vocab_size }, { dtype = 'bool', device = 'cpu' })
    for r, row in ipairs(prompts) do s.seen[r]:index_fill_(1, int_tensor(row, 'cpu'), true) end
    s.seen = s.seen:to(device)
  end
  if o.temperature > 0 and count > 0 then
    local draw, numbers = sampling.uniform(o.seed or amp.randint(1, 2 ^ 31, { 1 }, { dtype = 'int64', device = 'cpu' }):item()), {}
    for i = 1, count do
      numbers[i] = {}
      for r = 1, batch do numbers[i][r] = draw() end
    end
    s.uniform = amp.tensor(numbers, { dtype = 'float32', device = device }):clamp(0, 1 - 2 ^ -24) -- count x batch
  end
  s.new = amp.ones({ batch, math.max(count, 1) }, { dtype = 'int64', device = device }) -- what was chosen
  return s
end

-- Positions of `length` tokens from place `first` of the cache on: batch x length from 1.
local function positions(s, first, length)
  local p = amp.arange(first, first + length, { dtype = 'int64', device = s.device }):unsqueeze(1)
  return (p - s.left):clamp(1)
end

-- -- Steps ------------------------------------------------------------------------------------------------

-- The chosen token of a row of logits, batch x 1; `i`: which step, a number, or (fixed) a tensor of one element.
local function choose(s, logits, i)
  local o = s.options
  if s.seen then logits = sampling.penalize(logits, s.seen, o.repetition_penalty) end
  local u
  if s.uniform then
    u = (type(i) == 'number' and s.uniform:narrow(1, i, 1) or s.uniform:index_select(1, i)):t()
  end
  local token = sampling.next(logits, o, u):long()
  if s.seen then s.seen:scatter_(2, token, true) end
  return token
end

local function last_logits(s, hidden) return s.model:head(hidden:narrow(2, hidden:size(2), 1)):squeeze(2) end

-- The prompts go through; gives the first token.
local function prefill(s)
  local n, context = s.longest, { causal = true, offset = 0, cache = s.cache, length = s.longest }
  if s.ragged then
    context.positions, context.reach = positions(s, 1, n), n
    local causal = amp.ones({ n, n }, { dtype = 'bool', device = s.device }):tril()
    context.mask, context.causal = s.visible:narrow(2, 1, n):unsqueeze(2):unsqueeze(2):logical_and(causal), false
  end
  local hidden = s.model:hidden(s.ids, context)
  s.cache.used = n
  return choose(s, last_logits(s, hidden), 1)
end

-- One token on, where shapes may grow.
local function grow(s, token, i)
  local used = s.cache.used
  local context = { causal = false, offset = used, cache = s.cache, length = 1 }
  if s.ragged then
    context.positions, context.reach = positions(s, used + 1, 1), used + 1
    context.mask = s.visible:narrow(2, 1, used + 1):unsqueeze(2):unsqueeze(2)
  end
  local hidden = s.model:hidden(token, context)
  s.cache.used = used + 1
  return choose(s, last_logits(s, hidden), i)
end

-- What a fixed step works on: counters on the device, all changed in place.
local function begin_fixed(s, token)
  local at = s.longest + 1
  s.cache.at = int_tensor({ at }, s.device)
  s.step = int_tensor({ 2 }, s.device)
  s.token = token:clone()
  s.places = amp.arange(1, s.cache.length + 1, { dtype = 'int64', device = s.device }):unsqueeze(1)
end

-- One token on with the same shapes each time; reads and writes s.token, s.step, s.cache.at, s.new.
local function fixed_step(s)
  local seen = s.places:le(s.cache.at)
  if s.ragged then seen = seen:logical_and(s.visible) end
  local place = s.cache.at:unsqueeze(1)
  local context = {
    causal = false, offset = 0, cache = s.cache, length = 1, mask = seen:unsqueeze(2):unsqueeze(2), reach = s.cache.length,
    positions = s.ragged and (place - s.left) or place:expand(s.batch, 1),
  }
  local hidden = s.model:hidden(s.token, context)
  local token = choose(s, last_logits(s, hidden), s.step)
  s.token:copy_(token)
  s.new:index_copy_(2, s.step, token)
  s.cache.at:add_(1)
  s.step:add_(1)
end

-- -- The loop ---------------------------------------------------------------------------------------------

-- What the host knows of the rows: which have ended, and how many ids each has got.
local function host_of(s, eos, o)
  local set, host = {}, { done = {}, left = s.batch, counts = {}, reads = #eos > 0 or o.on_token ~= nil }
  for _, id in ipairs(eos) do set[id] = true end
  for r = 1, s.batch do host.counts[r] = 0 end
  -- Take a step's tokens. Gives whether all rows have ended.
  function host.take(tokens)
    if not host.reads then
      for r = 1, s.batch do host.counts[r] = host.counts[r] + 1 end
      return false
    end
    local list = tokens:reshape(-1):tolist()
    for r = 1, s.batch do
      if not host.done[r] then
        host.counts[r] = host.counts[r] + 1
        local id = list[r]
        local stop = set[id]
        if o.on_token and not (stop and s.hide[id]) and s.pieces(r, id) == false then stop = true end
        if stop then host.done[r], host.left = true, host.left - 1 end
      end
    end
    return host.left == 0
  end
  return host
end

local function run_growing(s, host)
  local token = amp.scope(prefill, s)
  for i = 1, s.count do
    s.new:narrow(2, i, 1):copy_(token)
    if host.take(token) or i == s.count then return end
    local before = token
    token = amp.scope(grow, s, token, i + 1)
    before:free()
  end
end

local function run_fixed(s, host)
  local token = prefill(s)
  s.new:narrow(2, 1, 1):copy_(token)
  if host.take(token) or s.count == 1 then return end
  begin_fixed(s, token)
  local step = s.device ~= 'cpu' and amp.capture(function() fixed_step(s) end) or function() fixed_step(s) end
  for _ = 2, s.count do
    step(s.token)
    if host.take(s.token) then return end
  end
end

-- The prompts and what came, as one int64 tensor.
local function result_of(s, prompts, host, form, fill)
  local new = s.new:cpu():tolist()
  local rows, longest = {}, 0
  for r, prompt in ipairs(prompts) do
    local row, n = {}, #prompt
    for i = 1, n do row[i] = prompt[i] end
    for i = 1, host.counts[r] do row[n + i] = new[r][i] end
    rows[r], longest = row, math.max(longest, #row)
  end
  local mask = {}
  for r, row in ipairs(rows) do
    mask[r] = {}
    for i = 1, longest do
      mask[r][i] = row[i] and 1 or 0
      row[i] = row[i] or fill
    end
  end
  if form == 'vector' then return int_tensor(rows[1], s.device) end
  return int_tensor(rows, s.device), int_tensor(mask, s.device)
end

local function run(s, prompts, o, eos, form)
  local host = host_of(s, eos, o)
  s.hide = {}
  for _, id in ipairs(eos) do s.hide[id] = true end
  if o.on_token then s.pieces = stream.new(s.model, o.on_token, s.batch) end
  if s.count > 0 then
    if s.fixed then run_fixed(s, host) else run_growing(s, host) end
    if s.pieces then s.pieces(nil) end
  end
  local pad = s.model.config.pad_token_id
  return result_of(s, prompts, host, form, eos[1] or type(pad) == 'number' and pad + 1 or 1)
end

--- Go on with one prompt or several.
-- @tparam nn.Module model
-- @tparam table|Tensor ids a list of ids, a vector or 1 x n tensor; several prompts: a list of such, or a prompts x length tensor
-- @tparam ?table given max_new_tokens (20, or what the context has room for), temperature (1; 0: always the likeliest token), top_k,
-- top_p (draw among the k best, or the best that make up p), repetition_penalty (above 1: tokens that were there are less likely),
-- eos (an id or a list: a row ends behind it), seed (draws are the call's own; nil: one is taken from amp's generator),
-- on_token(piece, row): called with each piece of text as it comes, or with the id where the model has no tokenizer; false ends the row
-- @treturn Tensor all ids, int64: a vector for a list or vector, else prompts x longest, filled up with eos
-- @treturn ?Tensor for several rows, 1 where an id counts
-- @raise prompts longer than the context, ids out of range
-- @usage local ids = model:generate(tok:encode 'Once', {max_new_tokens = 50, top_k = 40, seed = 1})
function M.generate(model, ids, given, internal)
  local op = model.__name .. ':generate'
  local o = options.read(op, given, known, defaults)
  check_numbers(op, o)
  if type(ids) == 'string' then
    local tok = model:get_tokenizer()
    if not tok then err.throw(op, 'a text needs a tokenizer: assign one, net.tokenizer = tok, or give ids') end
    ids = tok:encode(ids)
  end
  local prompts, form = prompts_of(op, ids)
  local vocabulary = model.config.vocab_size
  check_prompts(op, prompts, vocabulary)
  local eos = eos_of(op, o.eos, vocabulary)
  local longest = 0
  for _, row in ipairs(prompts) do longest = math.max(longest, #row) end
  local count = count_new(op, model, o, longest)
  local fixed = internal and internal.fixed
  if fixed == nil then fixed = model:device_of() ~= 'cpu' and longest + count <= model.config_positions end -- dynamic scaling grows beyond
  local modes = {}
  for i, m in ipairs(model:modules()) do modes[i] = { m, m.training } end
  model:eval()
  local state
  local results = util.pack(pcall(amp.no_grad, function()
    state = begin(model, prompts, o, count, fixed)
    return run(state, prompts, o, eos, form)
  end))
  for _, m in ipairs(modes) do m[1].training = m[2] end
  if state and not fixed then state.cache:free() end
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

return M
