--- A progress bar: a line that is drawn over itself on a terminal, and now and
-- then a line of its own where output goes to a file or a pipe.
--
--   local bar = amp.progress(loader:size(), {label = 'epoch 1'})
--   for x, y in loader:iter() do ... bar:update(1, {loss = loss}) end
--   bar:close()
--
-- A tensor given as a value is read only when the bar is drawn, so no training
-- step waits for the display.
local ffi = require 'ffi'
local options = require 'amp.options'
local more = require 'amp.core.library'
local util = require 'amp.util'
local core = require 'amp.ffi'
local raise = require('amp.error').throw

local clock, is_tensor = more.clock, more.is_tensor

ffi.cdef [[
int amp_posix_isatty(int fd) __asm__("isatty");
int amp_posix_fileno(void *file) __asm__("fileno");
int amp_posix_ioctl(int fd, unsigned long request, ...) __asm__("ioctl");
]]

local TIOCGWINSZ = ffi.os == 'OSX' and 0x40087468 or 0x5413

local function terminal_width(file)
  local size = ffi.new('unsigned short[4]')
  local ok = ffi.C.amp_posix_ioctl(ffi.C.amp_posix_fileno(file), TIOCGWINSZ, ffi.cast('void *', size)) == 0
  local columns = ok and size[1] > 0 and size[1] or tonumber(os.getenv('COLUMNS')) or 80
  return math.max(20, columns)
end

local function span(seconds)
  if seconds ~= seconds or seconds == math.huge then return '--:--' end
  local s = math.floor(seconds + 0.5)
  if s < 3600 then return string.format('%02d:%02d', math.floor(s / 60), s % 60) end
  return string.format('%d:%02d:%02d', math.floor(s / 3600), math.floor(s / 60) % 60, s % 60)
end

-- Characters of a text; a UTF-8 sequence is one.
local function length(s) return #s:gsub('[\128-\191]', '') end

-- A text on one line: what moves the cursor becomes a space.
local function plain(s) return (s:gsub('%c', ' ')) end

-- A text's first n characters.
local function first(s, n)
  if length(s) <= n then return s end
  local at, count = 1, 0
  for from in s:gmatch '()[^\128-\191]' do
    count = count + 1
    at = from
    if count > n then break end
  end
  return s:sub(1, at - 1)
end

local function shown(v)
  if is_tensor(v) then v = v:item() end
  if type(v) == 'number' then
    if v % 1 == 0 and math.abs(v) < 1e15 then return string.format('%d', v) end
    return string.format('%.4g', v)
  end
  return plain(tostring(v))
end

local Bar = {}
Bar.__index = Bar

local function values_text(values)
  local names = {}
  for name in pairs(values) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for i, name in ipairs(names) do names[i] = plain(tostring(name)) .. ' ' .. shown(values[name]) end
  return table.concat(names, '  ')
end

local function draw(bar, final)
  local now = bar.clock()
  local spent = now - bar.started
  local share = bar.total > 0 and math.min(bar.done / bar.total, 1) or 1
  local left = final and spent or (bar.done > 0 and spent / bar.done * math.max(bar.total - bar.done, 0) or math.huge)
  local head = (bar.label ~= '' and plain(bar.label) .. ' ' or '')
  local tail = string.format(' %d/%d %s%s', bar.done, bar.total, final and 'in ' or 'left ', span(left))
  local values = values_text(bar.values)
  if values ~= '' then tail = tail .. '  ' .. values end
  if not bar.terminal then
    bar.file:write(string.format('%s%3d%%%s\n', head, math.floor(share * 100), tail))
  else
    local width = terminal_width(bar.file) - 1
    local room = math.min(40, width - length(head) - length(tail) - 2)
    local line
    if room >= 5 then
      local full = math.floor(share * room)
      line = head .. '[' .. ('='):rep(full) .. (full < room and '>' or '') .. ('.'):rep(room - full - 1) .. ']' .. tail
    else
      line = string.format('%s%3d%%%s', head, math.floor(share * 100), tail)
    end
    line = first(line, width)
    local n = length(line)
    bar.file:write('\r', line, (' '):rep(math.min(bar.drawn, width) - n), final and '\n' or '')
    bar.drawn = n
  end
  bar.file:flush()
  bar.last = now
end

--- Go on.
-- @tparam ?number n steps done since the last update, default 1
-- @tparam ?table values shown behind the bar, name -> number, text or scalar tensor
function Bar:update(n, values)
  if type(n) == 'table' then n, values = 1, n end
  if n ~= nil and type(n) ~= 'number' then raise('progress:update', 'a number of steps expected, got %s', util.show(n)) end
  if values ~= nil and type(values) ~= 'table' then raise('progress:update', 'values by name expected, got %s', util.show(values)) end
  if self.closed then return self end
  self.done = self.done + (n or 1)
  for name, v in pairs(values or {}) do
    if is_tensor(v) then -- a handle of the bar's own: the caller's may be freed before it is drawn
      if v:numel() ~= 1 then
        raise('progress:update', "'%s' must have one element, it has shape %s", tostring(name), tostring(v:size()))
      end
      local own = core.ref_t()
      core.C.amp_retain(own, v)
      v = own
    end
    self.values[name] = v
  end
  local now = self.clock()
  if self.quiet then return self end
  if self.terminal then
    if now - self.last >= self.interval then draw(self) end
  else -- by tenths, and not more often than the interval
    local tenth = self.total > 0 and math.floor(self.done / self.total * 10) or 0
    tenth = math.min(tenth, 9) -- the last line is close's
    if now - self.last >= self.interval and (tenth > self.tenth or now - self.last >= 30) then
      self.tenth = tenth
      draw(self)
    end
  end
  return self
end

--- Draw for the last time and end the line. Twice is harmless.
function Bar:close()
  if not self.closed then
    self.closed = true
    if not self.quiet then draw(self, true) end
  end
  return self
end

require('amp.core.class').guard(Bar, 'progress', 'bar')

--- Make a bar.
-- @tparam number total steps it has
-- @tparam ?table given label, file (standard error), interval seconds between drawings
-- (0.1 on a terminal, 1 elsewhere), quiet (draw nothing), terminal (found out),
-- clock (a function giving seconds)
return function(total, given)
  if type(total) ~= 'number' or not (total >= 0 and total < math.huge) then
    raise('progress', 'a number of steps expected, got %s', tostring(total))
  end
  local bar = options.read('progress', given, {'label', 'file', 'interval', 'quiet', 'terminal', 'clock'},
    {label = '', file = io.stderr, quiet = false, clock = clock})
  if type(bar.file) ~= 'userdata' and not (type(bar.file) == 'table' and bar.file.write) then
    raise('progress', "file must be an open file, as io.open gives it, got %s", util.show(bar.file))
  end
  if type(bar.clock) ~= 'function' then raise('progress', 'clock must be a function that gives seconds, got %s', util.show(bar.clock)) end
  options.boolean('progress', 'quiet', bar.quiet)
  if bar.terminal ~= nil then options.boolean('progress', 'terminal', bar.terminal) end
  if bar.interval ~= nil then options.number('progress', 'interval', bar.interval, 0) end
  if bar.terminal == nil then
    bar.terminal = io.type(bar.file) == 'file' and ffi.C.amp_posix_isatty(ffi.C.amp_posix_fileno(bar.file)) == 1
      and os.getenv('TERM') ~= 'dumb'
  end
  if type(bar.label) ~= 'string' then raise('progress', 'label must be a string, got %s', util.show(bar.label)) end
  local dist = package.loaded['amp.distributed']
  if dist and dist.is_initialized() and not dist.is_main() then bar.quiet = true end -- rank 1 draws
  bar.interval = bar.interval or (bar.terminal and 0.1 or 1)
  bar.total, bar.done, bar.values, bar.drawn, bar.tenth = total, 0, {}, 0, 0
  bar.started = bar.clock()
  bar.last = bar.started
  return setmetatable(bar, Bar)
end
