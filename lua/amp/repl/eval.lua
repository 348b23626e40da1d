--- What is typed at the prompt becomes functions: an expression gives its values, a piece
-- that is not complete says so, variables of one input are there in the next.
-- It compiles; amp.repl.run calls.
-- @module amp.repl.eval
local lexer = require 'amp.repl.lexer'

local M = {}

-- -- Variables ---------------------------------------------------------------------------------

local declared = {} -- names that were local at the outermost level of some input

--- The environment of inputs. What was declared `local` lives in it, everything else in _G.
M.env = setmetatable({}, {
  __index = _G,
  __newindex = function(env, k, v)
    if declared[k] then rawset(env, k, v) else _G[k] = v end
  end,
})

--- Globals that are no variables of the session: those there were when the prompt was loaded, before any script that
-- runs ahead of it.
M.before = {}
for k in pairs(_G) do M.before[k] = true end

M.keep_locals = true -- `local` at the outermost level makes a variable of the session

--- Make names variables of the prompt.
function M.declare(names)
  for i = 1, #names do declared[names[i]] = true end
end

--- Set a variable of the prompt.
function M.set(name, value)
  declared[name] = true
  rawset(M.env, name, value)
end

-- -- Compiling -----------------------------------------------------------------------------------

local LONGEST = 400 -- lines of a statement that is looked for line by line

local function incomplete(message) return message:find("near '<eof>'", 1, true) ~= nil end

local function compile(text, name)
  local chunk, why = loadstring(text, name)
  if not chunk then return nil, why end
  return setfenv(chunk, M.env)
end

-- An expression. A call in it is no tail call: errors name the line it stands in.
local function expression(body, name)
  local chunk = compile('return ' .. body, name)
  if not chunk then return nil end
  local bare = body
  local tokens = lexer.tokens(body)
  for i = #tokens, 1, -1 do
    local t = tokens[i]
    if t.text == ';' then
      bare = body:sub(1, t.from - 1)
      break
    elseif t.kind ~= 'comment' then
      break
    end
  end
  local last = tokens[#tokens]
  return compile('local results__ = ... return results__(' .. bare .. (last and last.kind == 'comment' and '\n)' or ')'), name) or chunk
end

-- One chunk; nil, why, whether more lines could make it whole
local function piece(text, name)
  local body = text:match '^%s*=%s*(.*)$' or text -- "= x", as plain Lua's prompt has it
  local chunk = expression(body, name)
  if chunk then return { chunk = chunk, names = {}, expression = body } end
  local code, names = body, {}
  if M.keep_locals then code, names = lexer.hoist(body) end
  local why
  chunk, why = compile(code, name)
  if not chunk then
    local original = compile(body, name)
    if original then return { chunk = original, names = {} } end
    local _, wanted = compile('return ' .. body, name) -- `1 +` is the beginning of an expression, if of no statement
    return nil, why, incomplete(why) or (wanted ~= nil and incomplete(wanted))
  end
  return { chunk = chunk, names = names }
end

-- A text of several lines that is no chunk, as the statements and expressions it would be
-- if it were typed line by line.
local function pieces(text, name)
  local list, held, at, n = {}, nil, 0, 0
  for line in (text .. '\n'):gmatch '(.-)\n' do
    n = n + 1
    if held then held = held .. '\n' .. line
    else held, at = line, n end
    if n - at > LONGEST then return nil end
    if held:find '%S' then
      local p, _, more = piece(('\n'):rep(at - 1) .. held, name)
      if p then
        list[#list + 1] = p
        held = nil
      elseif not more then
        return nil
      end
    else
      held = nil
    end
  end
  if held then return nil end
  return list
end

-- Copied from a session, with its prompts
local function unprompted(text)
  if not text:find '^%s*amp> ' then return text end
  return (('\n' .. text):gsub('\n%s*amp> ', '\n'):gsub('\n%s*%.%.%.> ?', '\n'):sub(2))
end

--- Whether the text ends in a semicolon, which keeps results from being shown.
function M.silent(text)
  local tokens = lexer.tokens(text)
  for i = #tokens, 1, -1 do
    if tokens[i].kind ~= 'comment' then return tokens[i].text == ';' end
  end
  return false
end

--- Compile an input.
-- @tparam string text one or more lines
-- @tparam string name of the chunk, as loadstring takes it
-- @treturn ?table list of {chunk, names, expression}: run one after the other, each with a function as its
-- argument that gives back its arguments; nil: it does not compile
-- @treturn ?string why
-- @treturn ?boolean true: it may be the beginning of something longer
function M.compile(text, name)
  text = unprompted(text)
  local p, why, more = piece(text, name)
  if p then return { p } end
  if text:find '\n' then -- before asking for more: an expression in the last line looks as if it went on
    local list = pieces(text, name)
    if list and #list > 0 then return list end
  end
  return nil, why, more
end

return M
