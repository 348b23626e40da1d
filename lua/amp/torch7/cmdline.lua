--- torch.CmdLine: options of a script, as Torch7's scripts declare them.
--
--   local cmd = torch.CmdLine()
--   cmd:text 'Train a net'
--   cmd:option('-lr', 0.1, 'learning rate')
--   local opt = cmd:parse(arg or {})
-- An option's type is its default's. -help prints the texts and ends the script; a wrong option is an error that says so.
local util = require 'amp.util'
local files = require 'amp.log.files'
local raise = require('amp.error').throw

local CmdLine = {}
CmdLine.__index = CmdLine

--- A line of the help.
function CmdLine:text(s)
  self.lines[#self.lines + 1] = s or ''
end

local function bare(name) return (name:gsub('^%-+', '')) end

--- An option `-name value`.
function CmdLine:option(name, default, help)
  if type(name) ~= 'string' or not name:match '^%-' then raise('torch7.CmdLine', "an option's name begins with '-', got %s", util.show(name)) end
  local o = {name = name, default = default, help = help or ''}
  self.options[name] = o
  self.lines[#self.lines + 1] = o
end

--- A positional argument.
function CmdLine:argument(name, help)
  local a = {name = name, help = help or '', positional = true}
  self.arguments[#self.arguments + 1] = a
  self.lines[#self.lines + 1] = a
end

--- The help's text.
function CmdLine:help()
  local out = {}
  for i, l in ipairs(self.lines) do
    if type(l) == 'string' then out[i] = l
    else out[i] = ('  %-20s %s%s'):format(l.name, l.help, l.default ~= nil and (' [%s]'):format(tostring(l.default)) or '') end
  end
  return table.concat(out, '\n')
end

local function convert(o, text)
  local kind = type(o.default)
  if kind == 'number' then return tonumber(text) or raise('torch7.CmdLine', "%s takes a number, got '%s'", o.name, text) end
  if kind == 'boolean' then
    if text == 'true' or text == 'false' then return text == 'true' end
    raise('torch7.CmdLine', "%s takes true or false, got '%s'", o.name, text)
  end
  return text
end

--- Options of an argument list: name (without dashes) -> value. A boolean's name alone turns it over.
function CmdLine:parse(arg)
  local out, places, i, positional = {}, {}, 1, 0
  for name, o in pairs(self.options) do
    out[bare(name)] = o.default
    places[#places + 1] = name
  end
  while i <= #arg do
    local a = arg[i]
    local o = self.options[a]
    if not o and (a == '-help' or a == '--help' or a == '-h') then
      print(self:help())
      os.exit(0)
    end
    if o then
      local following = arg[i + 1]
      if type(o.default) == 'boolean' and following ~= 'true' and following ~= 'false' then
        out[bare(a)] = not o.default
      else
        if following == nil then raise('torch7.CmdLine', '%s needs a value', a) end
        out[bare(a)] = convert(o, following)
        i = i + 1
      end
    elseif a:match '^%-%a' then
      raise('torch7.CmdLine', "unknown option '%s'%s", a, util.hint(a, places))
    else
      positional = positional + 1
      local p = self.arguments[positional]
      if not p then raise('torch7.CmdLine', "an argument too many: '%s'", a) end
      out[bare(p.name)] = a
    end
    i = i + 1
  end
  if positional < #self.arguments then raise('torch7.CmdLine', "the argument '%s' is missing", self.arguments[positional + 1].name) end
  return out
end

--- A time before every line of the log.
function CmdLine:addTime(name, format) self.dateformat = (format or '%Y-%m-%d %H:%M:%S') .. (name and ' [' .. name .. ']: ' or ' ') end
--- Log only, with nothing on the screen.
function CmdLine:silent() self.quiet = true end

--- What the script prints goes to a file too (a path, whose file begins anew, or an open file), the options first. `print` is another function from then on.
function CmdLine:log(file, params)
  local f, why = file, nil
  if type(file) == 'string' then f, why = files.append(file, true) end
  if not f then raise('torch7.CmdLine', "cannot write '%s': %s", tostring(file), tostring(why)) end
  local screen = print
  rawset(_G, 'print', function(...)
    if not self.quiet then screen(...) end
    local parts = {}
    for i = 1, select('#', ...) do parts[i] = tostring((select(i, ...))) end
    f:write((self.dateformat and os.date(self.dateformat) or '') .. table.concat(parts, ' ') .. '\n')
    if f ~= file then return end
    f:flush()
  end)
  print('[program started on ' .. os.date() .. ']')
  for k, v in pairs(params or {}) do print(k, v) end
end

--- A name for a folder: the prefix and the options that are not their defaults, `ignore` those that do not count.
function CmdLine:string(prefix, params, ignore)
  local parts = {}
  for k, v in pairs(params) do
    local o = self.options['-' .. k]
    if not (ignore and ignore[k]) and (not o or o.default ~= v) then
      if type(v) == 'boolean' then v = v and 't' or 'f' end
      parts[#parts + 1] = k .. '=' .. tostring(v)
    end
  end
  table.sort(parts)
  local text = table.concat(parts, ',')
  if text == '' then return prefix or '' end
  return (prefix or '') .. ',' .. text
end
require('amp.core.class').guard(CmdLine, 'torch7.CmdLine', 'cmd')

return function() return setmetatable({lines = {}, options = {}, arguments = {}}, CmdLine) end
