--- Damaged files for every reader: luajit spec/data/fuzz_readers.lua [files a reader] [seed] [pattern of readers' names]
--
-- A file starts as a good one of its format and is changed: bytes, whole numbers, pieces cut, doubled, moved between two good ones;
-- check sums are often set right again, so that what lies behind them is reached. Whatever comes of it, reading must end soon, in a
-- value or in an error of amp's that names the file, and take little memory; numbers that come out must be numbers. Ends with
-- `N passed, N failed` (readers); the file that failed is kept and named. AMP_BUILD as for spec/run.lua.
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local root = here .. '/../..'
local build = os.getenv('AMP_BUILD') or (root .. '/build')
package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;%s'):format(root, root, root, package.path)
package.cpath = ('%s/?.so;%s'):format(build, package.cpath)
local ffi = require 'ffi'
local amp = require 'amp'
local err = require 'amp.error'
local seeds = require 'spec.data.fuzz_seeds'
local C = require('amp.ffi').C

local count, seed, pattern = tonumber(arg[1]) or 2000, tonumber(arg[2]) or 1, arg[3] or '.'
local MOST = 2 ^ 22       -- max_bytes of most reads
local SLOW = os.getenv 'AMP_SPEC_SANITIZED' and 20 or 5 -- seconds of this process a file may take
local folder = os.getenv 'AMP_FUZZ_DIR' or (io.open('/dev/shm/.', 'rb') and '/dev/shm' or '/tmp')
local path = ("%s/amp-fuzz-%s-%d.csv"):format(folder, tostring({}):match "0x0*(%x+)", seed)

local random = require 'spec.lib.draw'
local draw, start, chance, pick = random.draw, random.start, random.chance, random.pick

-- -- Changes -------------------------------------------------------------------------

local le = require('amp.io.file').le
local bytes = { 0, 1, 2, 3, 4, 5, 8, 10, 32, 34, 48, 57, 91, 123, 125, 127, 128, 200, 253, 254, 255 }
local numbers = { 0, 1, 2, 7, 8, 9, 255, 256, 65535, 65536, 2 ^ 24, 2 ^ 31 - 1, 2 ^ 31, 2 ^ 32 - 1, 2 ^ 32, 2 ^ 40, 2 ^ 53, 2 ^ 63, 2 ^ 64 - 2048 }
local words = { '[', ']', '{', '}', ',', ':', '"', '0', '-1', '1e999', 'nan', 'inf', '99999999999999999999', '\n', '%', '\\u0000', '(', ')', '()', "'" }

local function put(s, at, piece) return s:sub(1, at - 1) .. piece .. s:sub(at + #piece) end

local changes = {
  function(s) return put(s, draw(#s), string.char(pick(bytes))) end,
  function(s) return put(s, draw(#s), string.char(draw(256) - 1)) end,
  function(s) -- one bit
    local at = draw(#s)
    return put(s, at, string.char(bit.bxor(s:byte(at), 2 ^ (draw(8) - 1))))
  end,
  function(s) return put(s, draw(#s), le(pick(numbers) % 2 ^ 32, 4)):sub(1, #s + 3) end,
  function(s) return put(s, draw(#s), le(pick(numbers), 8)):sub(1, #s + 7) end,
  function(s) return put(s, draw(#s), le(pick(numbers) % 2 ^ 32, 4):reverse()) end,
  function(s) -- a piece goes
    local at = draw(#s)
    return s:sub(1, at - 1) .. s:sub(at + draw(math.min(40, #s)))
  end,
  function(s) -- a piece comes twice
    local at, n = draw(#s), draw(40)
    return s:sub(1, at + n - 1) .. s:sub(at)
  end,
  function(s) return s:sub(1, draw(#s)) end,
  function(s, other) -- the head of one, the tail of another
    return s:sub(1, draw(#s)) .. other:sub(draw(#other))
  end,
  function(s) return put(s, draw(#s), pick(words)) end,
  function(s)
    local at = draw(#s)
    return s:sub(1, at - 1) .. pick(words) .. s:sub(at)
  end,
  function(s) -- the same bytes somewhere else
    local from, n = draw(#s), draw(16)
    return put(s, draw(#s), s:sub(from, from + n - 1))
  end,
}

local function change(list, fix)
  local s = pick(list)
  for _ = 1, chance(60) and 1 or draw(5) do
    if #s > 0 then s = pick(changes)(s, pick(list)) end
  end
  if fix and chance(60) then s = fix(s) end
  return s
end

-- -- What came of it ---------------------------------------------------------------------

local plain = { number = true, string = true, boolean = true, ['nil'] = true }

local function look(v, depth)
  if plain[type(v)] then
    if type(v) == 'number' then return v + 0 end
    return
  end
  if amp.is_tensor(v) then
    if v:numel() > 0 and v:numel() <= 4096 then
      local x = v:reshape(-1):tolist()
      for i = 1, #x do if type(x[i]) ~= 'number' and type(x[i]) ~= 'boolean' then error('an element is a ' .. type(x[i]), 0) end end
    end
    return
  end
  if type(v) ~= 'table' then error('a ' .. type(v) .. ' came out', 0) end
  if depth > 12 then return end
  local n = 0
  for k, x in pairs(v) do
    n = n + 1
    if n > 100 then break end
    look(k, depth + 1)
    look(x, depth + 1)
  end
end

local function live() return tonumber(C.amp_memory(0, 0).live) end

-- nil, or what is wrong.
local function try(reader, text)
  local f = assert(io.open(path, 'wb'))
  f:write(text)
  f:close()
  local began = os.clock()
  local before = live()
  local ok, v = pcall(reader.read, path)
  if os.clock() - began > SLOW then return ('it took %.1f s'):format(os.clock() - began) end
  if collectgarbage 'count' > 600 * 1024 then
    collectgarbage()
    if collectgarbage 'count' > 300 * 1024 then return ('%.0f MB of Lua'):format(collectgarbage 'count' / 1024) end
  end
  if live() - before > 2 ^ 25 then return ('%.0f bytes of tensors are live'):format(live() - before) end
  if ok then
    local fine, why = pcall(look, v, 0)
    return not fine and tostring(why) or nil
  end
  if reader.plain then return type(v) ~= 'string' and not err.is(v) and 'the error is a ' .. type(v) or nil end
  if not err.is(v) then return 'not an error of amp: ' .. tostring(v) end
  if not tostring(v):find(path, 1, true) then return 'the error does not name the file: ' .. tostring(v) end
  if v.code == 'internal' then return tostring(v) end
end

local passed, failed = 0, 0
for _, reader in ipairs(seeds(path, MOST)) do
  if reader.name:find(pattern) then
    start(seed)
    local wrong, good = nil, 0
    local every = math.max(1, math.floor(count * (reader.share or 1)))
    for i = 1, every do
      local text = i <= #reader.files and reader.files[i] or change(reader.files, reader.fix)
      wrong = try(reader, text)
      if wrong and not (i <= #reader.files and reader.foreign) then
        local kept = path .. '.' .. reader.name .. '.kept'
        os.rename(path, kept)
        print(('%s: file %d of seed %d, kept as %s: %s'):format(reader.name, i, seed, kept, wrong))
        break
      end
      wrong = nil
      good = good + 1
      if good % 200 == 0 then collectgarbage() end
    end
    if wrong then failed = failed + 1 else passed = passed + 1 end
    if os.getenv 'AMP_FUZZ_VERBOSE' then
      print(('%-14s %d files, %.0f MB of Lua'):format(reader.name, every, collectgarbage 'count' / 1024))
      io.stdout:flush()
    end
  end
end
os.remove(path)
print(('%d passed, %d failed'):format(passed, failed))
ffi.C.amp_posix_getpid() -- the library stays loaded to the end
os.exit(failed == 0 and 0 or 1)
