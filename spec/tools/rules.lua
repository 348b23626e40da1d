--- Rules of the sources that no compiler and no linter knows: luajit spec/tools/rules.lua [files]
--
-- Without files it reads src, kernels, lua and spec. Says each place, and ends with `N passed, N failed` (files).
local MOST_LINES, MOST_COLUMNS = 600, 120
local by_hand = { ['src/amp.h'] = true, ['src/amp_ops.def'] = true } -- tables, laid out by hand

local function sources()
  local list = {}
  for path in io.popen "find src kernels lua spec -type f -not -path 'spec/fixtures/*' | LC_ALL=C sort":lines() do list[#list + 1] = path end
  return list
end

local function is_c(path)
  local kind = path:match '%.(%w+)$'
  return kind == 'c' or kind == 'h' or kind == 'cu' or kind == 'cuh' or kind == 'cpp'
end

--- Columns of a line: a character of UTF-8 takes one.
local function columns(line) return select(2, line:gsub('[^\128-\191]', '')) end

--- The text with comments and what stands in quotes blanked, line breaks kept.
local function code_of(text)
  text = text:gsub('/%*.-%*/', function(c) return (c:gsub('[^\n]', ' ')) end)
  return (text:gsub('//[^\n]*', ''):gsub('"[^"\n]*"', '""'))
end

local function line_of(text, at) return select(2, text:sub(1, at):gsub('\n', '')) + 1 end

local rules = {}

function rules.length(path, text, say)
  if by_hand[path] or not (is_c(path) or path:find '%.lua$') then return end
  local n = select(2, text:gsub('\n', ''))
  if n > MOST_LINES then say(1, ('%d lines; a file has no more than %d'):format(n, MOST_LINES)) end
  if not is_c(path) then return end -- of Lua luacheck knows
  local at = 0
  for line in text:gmatch '([^\n]*)\n' do
    at = at + 1
    if #line > MOST_COLUMNS and columns(line) > MOST_COLUMNS then say(at, ('more than %d columns'):format(MOST_COLUMNS)) end
  end
end

-- fork() takes the locks of base/locks.h and no other: a mutex outside that table would stay taken in the child. Plug-ins are
-- left out: MPI's asks whose process it is before it takes its own, a CUDA context (and NCCL with it) is of no use in a child.
function rules.mutex(path, text, say)
  if not path:find '^src/.*%.c$' or path:find '^src/cuda/' or path:find '^src/cpu/onednn/' or path:find '^src/distributed/%l+/'
     or path == 'src/base/fork.c' then return end
  local at = text:find('PTHREAD_MUTEX_INITIALIZER', 1, true)
  if at then say(line_of(text, at), 'a mutex outside the table of base/locks.h') end
end

-- A CUDA library's status is read; AMP_UNREAD says why not. A call that begins a statement reads nothing.
function rules.status(path, text, say)
  if not path:find '^src/cuda/.*%.c$' then return end
  local code = code_of(text)
  for before, at, library in code:gmatch '([^%s])%s+()(%l+)%.%u[%w_]*%(' do
    if (library == 'so' or library == 'lt' or library == 'dnn' or library == 'ft') and before:find '[;{})]' then
      local head = code:sub(math.max(1, at - 40), at - 1)
      if not head:find '%(ready%(%)%)%s*$' then say(line_of(code, at), 'the status of a call is not read (AMP_UNREAD says why not)') end
    end
  end
end

-- nvcc 13.0 compiles it wrongly without a word: `if constexpr (...) statement; else`, unbraced, before a pragma.
function rules.constexpr(path, text, say)
  if not path:find '^kernels/' then return end
  local open, after_else, at = false, false, 0
  for line in text:gmatch '([^\n]*)\n' do
    at = at + 1
    local head = line:find('if constexpr', 1, true)
    if after_else and line:find '#%s*pragma' then say(at, 'an unbraced if constexpr whose else begins with a pragma') end
    after_else = open and line:find '^%s*else%s*$' ~= nil
    if head then open = not line:gsub('%s*/%*.*$', ''):find '{%s*$'
    elseif after_else or line:find(';', 1, true) then open = false end
  end
end

-- A compiled `next` of older LuaJITs may end the process: see lua/amp/core/keys.lua.
function rules.next(path, text, say)
  if not path:find '^lua/amp/' or path == 'lua/amp/core/keys.lua' then return end
  local at = 0
  for line in text:gmatch '([^\n]*)\n' do
    at = at + 1
    if (' ' .. line:gsub('%-%-.*$', '')):find '[^%w_.:]next%(' then say(at, 'next(): ask by amp.core.keys') end
  end
end

local passed, failed = 0, 0
for _, path in ipairs(arg[1] and arg or sources()) do
  local file = io.open(path, 'rb')
  local text = file and file:read '*a'
  if file then file:close() end
  local good = text ~= nil
  if not text then print(path .. ': cannot be read') end
  for _, name in ipairs { 'length', 'mutex', 'status', 'constexpr', 'next' } do
    if text then
      rules[name](path, text, function(line, what)
        print(('%s:%d: %s'):format(path, line, what))
        good = false
      end)
    end
  end
  if good then passed = passed + 1 else failed = failed + 1 end
end
print(('%d passed, %d failed'):format(passed, failed))
os.exit(failed == 0 and passed > 0 and 0 or 1)
