--- Comments of Lua sources, read when somebody asks: the block above a function, the head
-- of a file, and their tags.
-- @module amp.repl.ldoc
local core = require 'amp.ffi'
local raw = require('amp.core.class').raw

local M = {}

local files = {} -- path -> lines

local function lines_of(path)
  local lines = files[path]
  if not lines then
    lines = {}
    local f = io.open(path, 'rb')
    if f then
      for line in f:lines() do lines[#lines + 1] = line end
      f:close()
    end
    files[path] = lines
  end
  return lines
end

-- {text, params, returns, raises, usage} of a block's lines
local function parse(block)
  local doc = { text = {}, params = {}, returns = {}, raises = {}, usage = {} }
  local into = doc.text
  local last
  for i = 1, #block do
    local line = block[i]:gsub('^%s*%-%-%-?%s?', '')
    local tag, rest = line:match '^%s*@(%w+)%s*(.*)$'
    if not tag then
      if last then last[#last] = last[#last] .. ' ' .. line:match '^%s*(.-)%s*$' else into[#into + 1] = line end
    else
      last = nil
      if tag == 'tparam' then
        local kind, name, text = rest:match '^(%S+)%s+(%S+)%s*(.*)$'
        if kind then
          local p = { kind = kind, name = name, text }
          doc.params[#doc.params + 1], last = p, p
        end
      elseif tag == 'param' then
        local name, text = rest:match '^(%S+)%s*(.*)$'
        if name then
          local p = { kind = '', name = name, text }
          doc.params[#doc.params + 1], last = p, p
        end
      elseif tag == 'treturn' or tag == 'return' then
        doc.returns[#doc.returns + 1], last = rest, doc.returns
      elseif tag == 'raise' then
        doc.raises[#doc.raises + 1], last = rest, doc.raises
      elseif tag == 'usage' then
        into = doc.usage
        if rest ~= '' then into[1] = rest end
      end
    end
  end
  return doc
end

-- The last of a file's comment lines before `line`, going up; only a block that begins with three dashes
local function above(lines, line)
  local first = line
  while first > 1 and lines[first - 1]:find '^%s*%-%-' do first = first - 1 end
  if first == line then return nil end
  for i = first, line - 1 do
    if lines[i]:find '^%s*%-%-%-' then
      local block = {}
      for k = i, line - 1 do block[#block + 1] = lines[k] end
      return block
    end
  end
end

--- The comment above a function.
-- @tparam function f
-- @treturn ?table doc
function M.of_function(f)
  local info = debug.getinfo(raw(f), 'S')
  if info.what == 'C' or info.source:sub(1, 1) ~= '@' then return nil end
  local lines = lines_of(info.source:sub(2))
  if not lines[info.linedefined] then return nil end
  local block = above(lines, info.linedefined)
  return block and parse(block)
end

--- A list of parameters without `excess`, which stands for what a function does not take (amp.options.none).
function M.shown(list) return list and (list:gsub(',%s*excess%)$', ')'):gsub('^%(excess%)$', '()')) end

--- Names of a function's parameters, as its definition has them.
-- @treturn ?string "(x, y, ...)"
-- @treturn ?boolean whether it is a method by that: `function Name:method`, whose self is not among them
function M.signature(f)
  local info = debug.getinfo(raw(f), 'S')
  if info.what == 'C' or info.source:sub(1, 1) ~= '@' then return nil end
  local line = lines_of(info.source:sub(2))[info.linedefined]
  if not line then return nil end
  local name, list = line:match 'function%s*([^(]*)(%b())'
  return M.shown(list), name and name:find(':', 1, true) ~= nil
end

--- The head of a file.
-- @tparam string path
-- @treturn ?table doc
function M.of_file(path)
  local lines = lines_of(path)
  if not (lines[1] and lines[1]:find '^%-%-%-') then return nil end
  local block, i = {}, 1
  while lines[i] and lines[i]:find '^%-%-' do
    block[i] = lines[i]
    i = i + 1
  end
  return parse(block)
end

--- All of a file's documented functions.
-- @tparam string path
-- @treturn table list of {name, doc}
function M.functions(path)
  local lines, list = lines_of(path), {}
  for i = 1, #lines do
    local name = lines[i]:match '^%s*function ([%w_.:]+)' or lines[i]:match '^%s*([%w_.]+) = function'
      or lines[i]:match '^(M%.[%w_]+) = ' -- made by another function
    local block = name and not lines[i]:find '^%s*local' and above(lines, i)
    if block then list[#list + 1] = { name, parse(block) } end
  end
  return list
end

--- Lua files of amp, every one.
-- @treturn table list of paths
function M.sources()
  local listing = require 'amp.repl.files'
  local list = {}
  local function visit(folder)
    for _, name in ipairs(listing.list(folder)) do
      if name:sub(-1) == '/' then visit(folder .. name)
      elseif name:find '%.lua$' then list[#list + 1] = folder .. name end
    end
  end
  visit(core.here)
  return list
end

--- Forget what was read: files may have changed.
function M.forget() files = {} end

return M
