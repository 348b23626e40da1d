--- The packages that scripts ask for besides torch, nn and optim: paths, sys, xlua, image, lfs; threads are in own/threads.lua.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local file = require 'amp.io.file'
local core_library = require('amp.ffi').C
local raise = require('amp.error').throw

local M = {}

-- A word of a command of the shell's.
local function quoted(s)
  local fine, why = file.usable(s)
  if not fine then raise('torch7', "'%s': %s", (s:gsub('%z', '\\0')), why) end
  if s:sub(1, 1) == '-' then s = './' .. s end -- a path, not an option
  return "'" .. s:gsub("'", "'\\''") .. "'"
end
local function lines_of(command)
  local p, list = io.popen(command, 'r'), {}
  for line in p:lines() do list[#list + 1] = line end
  p:close()
  return list
end
local function is_kind(path, kind) return file.usable(path) == true and core_library.amp_file_kind(path, 1, nil) == kind end
local function is_file(path) return is_kind(path, core_library.AMP_FILE_REGULAR) end
local function is_folder(path) return is_kind(path, core_library.AMP_FILE_FOLDER) end

-- -- paths ------------------------------------------------------------------------------------------

function M.paths()
  local P = {}
  P.filep, P.dirp = is_file, is_folder
  function P.basename(path, suffix)
    local name = path:gsub('/+$', ''):match '([^/]*)$'
    if suffix then name = name:gsub('%.?' .. suffix:gsub('^%.', ''):gsub('%p', '%%%0') .. '$', '') end
    return name
  end
  function P.dirname(path)
    local d = path:gsub('/+$', ''):match '^(.*)/[^/]*$'
    return d == nil and '.' or d == '' and '/' or d
  end
  function P.extname(path) return path:match '%.([^./]+)$' end
  function P.cwd() return lines_of('pwd')[1] end
  function P.concat(first, ...)
    local path = first or P.cwd()
    for _, part in ipairs {...} do
      if part:sub(1, 1) == '/' then path = part else path = path:gsub('/+$', '') .. '/' .. part end
    end
    return path
  end
  P.home = os.getenv 'HOME' or '/'
  function P.dir(path)
    if not P.dirp(path) then return nil end
    local list = lines_of('ls -a ' .. quoted(path))
    return list
  end
  function P.files(path, pattern)
    local list, i = P.dir(path) or {}, 0
    return function()
      while true do
        i = i + 1
        local f = list[i]
        if f == nil then return nil end
        if not pattern or type(pattern) == 'function' and pattern(f) or type(pattern) == 'string' and f:find(pattern) then return f end
      end
    end
  end
  local function kinds(path, test_one)
    local list = {}
    for f in P.files(path) do
      if f ~= '.' and f ~= '..' and test_one(P.concat(path, f)) then list[#list + 1] = f end
    end
    local i = 0
    return function()
      i = i + 1
      return list[i]
    end
  end
  function P.iterfiles(path) return kinds(path, P.filep) end
  function P.iterdirs(path) return kinds(path, P.dirp) end
  function P.mkdir(path) return require('amp.log.files').make_folder(path) == true and is_folder(path) end
  function P.rmdir(path) return os.execute('rmdir ' .. quoted(path)) == 0 end
  P.rmall = function(path, sure) return sure == 'yes' and os.execute('rm -r ' .. quoted(path)) == 0 end
  function P.tmpname() return os.tmpname() end
  function P.uname() return lines_of('uname -s')[1] end
  function P.findprogram(...)
    for _, name in ipairs {...} do
      local found = lines_of('command -v ' .. quoted(name) .. ' 2>/dev/null')[1]
      if found then return found end
    end
  end
  function P.thisfile(name, level)
    local source = debug.getinfo((level or 1) + 1, 'S').source
    local here = source:sub(1, 1) == '@' and source:sub(2) or nil
    if here and here:sub(1, 1) ~= '/' then here = P.concat(P.cwd(), here) end
    if name and here then return P.concat(P.dirname(here), name) end
    return here
  end
  function P.dofile(name, level)
    local path = name
    if name:sub(1, 1) ~= '/' then path = P.concat(P.dirname(P.thisfile(nil, (level or 1) + 1) or P.cwd() .. '/x'), name) end
    return dofile(path)
  end
  function P.require(name) return require(name) end
  function P.is_win() return false end
  function P.is_mac() return P.uname() == 'Darwin' end
  return setmetatable(P, {__call = function(_, ...) return P.concat(...) end})
end

--- The few functions of Penlight's `path` that scripts use, where Penlight is not installed.
function M.path(paths)
  return {
    join = paths.concat, isfile = paths.filep, isdir = paths.dirp, basename = paths.basename, dirname = paths.dirname, currentdir = paths.cwd,
    exists = function(p) return paths.filep(p) or paths.dirp(p) end,
    extension = function(p) return p:match '%.[^./]+$' or '' end,
    splitext = function(p)
      local e = p:match '%.[^./]+$' or ''
      return p:sub(1, #p - #e), e
    end,
  }
end

function M.sys(paths)
  local S, began = {}, amp.clock()
  for _, name in ipairs {'dirname', 'basename', 'concat', 'files', 'home'} do S[name] = paths[name] end
  S.clock = amp.clock
  function S.tic() began = amp.clock() end
  function S.toc(show)
    local t = amp.clock() - began
    if show then print(t) end
    return t
  end
  function S.execute(command)
    local p = io.popen(command, 'r')
    local text = p:read '*a'
    p:close()
    return (text:gsub('%s+$', ''))
  end
  S.fexecute = S.execute
  function S.sleep(s) os.execute(('sleep %.3f'):format(s)) end
  function S.uname() return 'linux' end
  function S.ls(path) return S.execute('ls ' .. quoted(path or '.')) end
  function S.fpath()
    local source = debug.getinfo(2, 'S').source:gsub('^@', '')
    return source:match '^(.*)/[^/]*$' or '.', source:match '([^/]*)$'
  end
  S.filep, S.dirp = is_file, is_folder
  S.usePython, S.quiet = nil, nil
  S.COLORS = setmetatable({}, {__index = function() return '' end})
  return S
end

function M.xlua()
  local X = {progress = function(i, n) return require('amp.torch7').xlua.progress(i, n) end}
  function X.error(message, name) error((name and '<' .. name .. '> ' or '') .. tostring(message), 2) end
  function X.warn(message) io.stderr:write(tostring(message), '\n') end
  X.warning = X.warn
  function X.print(...) print(...) end
  function X.require(name)
    local ok, m = pcall(require, name)
    return ok and (m or true) or nil
  end
  function X.log() end
  function X.clearall() end
  function X.unpack(args, name, _, ...)
    local out = {}
    local first = args[1]
    local named = #args == 1 and type(first) == 'table'
    for i, d in ipairs {...} do
      local v
      if named then v = first[d.arg] else v = args[i] end
      if v == nil then v = d.default end
      if v == nil and d.req then error(('%s: the argument %s is missing'):format(tostring(name), d.arg), 2) end
      out[i], out[d.arg] = v, v
    end
    return out, unpack(out, 1, select('#', ...))
  end
  return X
end

-- -- image: C x H x W tensors of 0..1 ------------------------------------------------------------------

function M.image(torch)
  local I = {}
  local function out_of(h) return core.wrap(h:to(core.types[torch.getdefaulttensortype()].dtype)) end
  --- image.load(path, [planes], [type]): 'byte' keeps 0..255.
  function I.load(path, planes, kind)
    local h = amp.data.read_image(path)
    if planes == 1 and h:size(1) == 3 then
      h = (h:double() * amp.tensor({0.299, 0.587, 0.114}, {dtype = 'float64'}):view(3, 1, 1)):sum(1, true):round():to 'uint8'
    end
    if planes == 3 and h:size(1) == 1 then h = h:expand(3, h:size(2), h:size(3)):contiguous() end
    if kind == 'byte' then return core.wrap(h) end
    return out_of(h:double() / 255)
  end
  function I.save(path, x)
    local h = core.amp_of(x)
    if h:dim() == 2 then h = h:unsqueeze(1) end
    if not path:lower():match '%.png$' then raise('image.save', "only .png is written, got '%s'", path) end
    local v = h.dtype == 'uint8' and h or (h:float():clamp(0, 1) * 255):round():to 'uint8'
    local pixels = v:permute(2, 3, 1):contiguous()
    local png = require('amp.plot.png').encode(pixels:data_ptr(), v:size(3), v:size(2), v:size(1))
    local ok, why = require('amp.io.file').replace(path, function(put) put(png) end)
    if not ok then raise('image.save', "cannot write '%s': %s", path, why) end
  end
  for _, kind in ipairs {'PNG', 'JPG', 'PPM', 'PGM'} do I['load' .. kind], I['save' .. kind] = I.load, I.save end
  local function batched(h) return h:dim() == 2 and h:unsqueeze(1):unsqueeze(1) or h:dim() == 3 and h:unsqueeze(1) or h end
  local function like(h, y) return y:reshape(h:dim() == 2 and {y:size(3), y:size(4)} or h:dim() == 3 and {y:size(2), y:size(3), y:size(4)} or y:size()) end
  --- image.scale(src, width, height, [mode]) or image.scale(src, 'WxH'); a number alone is the longer side.
  function I.scale(x, w, height, mode)
    local h = core.amp_of(x)
    local H0, W0 = h:size(h:dim() - 1), h:size(h:dim())
    if type(w) == 'string' then
      local a, b = w:match '^(%d+)x(%d+)$'
      mode = type(height) == 'string' and height or mode
      if a then w, height = tonumber(a), tonumber(b)
      else
        local side = tonumber(w:match '%d+')
        local k = w:sub(1, 1) == '^' and side / math.min(W0, H0) or side / math.max(W0, H0)
        w, height = math.floor(W0 * k + 0.5), math.floor(H0 * k + 0.5)
      end
    elseif height == nil or type(height) == 'string' then
      mode = height
      local k = w / math.max(W0, H0)
      w, height = math.floor(W0 * k + 0.5), math.floor(H0 * k + 0.5)
    end
    mode = mode or 'bilinear'
    if mode == 'simple' then mode = 'nearest' end
    if mode ~= 'bilinear' and mode ~= 'nearest' and mode ~= 'bicubic' then
      raise('image.scale', "the mode is 'bilinear', 'bicubic' or 'simple', got %s", tostring(mode))
    end
    local v = batched(h):float()
    local o = {size = {height, w}, mode = mode}
    if mode ~= 'nearest' then o.align_corners = true end
    return core.wrap(like(h, amp.interpolate(v, o)):to(h.dtype))
  end
  --- image.crop(src, x1, y1, [x2, y2]) from 0, the end left out; image.crop(src, 'c', width, height)
  function I.crop(x, a, b, c, d)
    local h = core.amp_of(x)
    local n = h:dim()
    local H0, W0 = h:size(n - 1), h:size(n)
    if type(a) == 'string' then
      local w, height = b, c
      local x0 = a:find 'r' and W0 - w or a:find 'l' and 0 or math.floor((W0 - w) / 2)
      local y0 = a:find 'b' and H0 - height or a:find 't' and 0 or math.floor((H0 - height) / 2)
      if a == 'c' then x0, y0 = math.ceil((W0 - w) / 2), math.ceil((H0 - height) / 2) end
      a, b, c, d = x0, y0, x0 + w, y0 + height
    end
    return core.wrap(h:narrow(n - 1, b + 1, d - b):narrow(n, a + 1, c - a):clone())
  end
  local function flipped(d)
    return function(first, second)
      local x = second or first
      local y = core.amp_of(x):flip(d)
      if second then return core.assign(first, y) end
      return core.wrap(y)
    end
  end
  I.hflip, I.vflip = flipped(-1), flipped(-2)
  local function colours(rows)
    return function(first, second)
      local h = core.amp_of(second or first)
      local y = amp.tensor(rows, {dtype = 'float64'}):to(h.dtype):matmul(h:reshape(3, -1)):reshape(h:size())
      if second then return core.assign(first, y) end
      return core.wrap(y)
    end
  end
  I.rgb2yuv = colours {{0.299, 0.587, 0.114}, {-0.14713, -0.28886, 0.436}, {0.615, -0.51499, -0.10001}}
  I.yuv2rgb = colours {{1, 0, 1.13983}, {1, -0.39465, -0.58060}, {1, 2.03211, 0}}
  function I.rgb2y(x)
    return core.wrap((core.amp_of(x) * amp.tensor({0.299, 0.587, 0.114}, {dtype = 'float64'}):to(core.amp_of(x).dtype):view(3, 1, 1)):sum(1, true))
  end
  function I.minmax(o)
    local x = o.tensor
    local h = core.amp_of(x):double()
    local low, high = o.min or h:min():item(), o.max or h:max():item()
    return out_of(((h - low) / math.max(high - low, 1e-12)):clamp(0, 1))
  end
  --- Many images as one.
  function I.toDisplayTensor(o, padding, nrow)
    local input = o
    if type(o) == 'table' and o.input then input, padding, nrow = o.input, o.padding, o.nrow end
    if type(input) == 'table' then
      local list = {}
      for i, t in ipairs(input) do list[i] = core.amp_of(t) end
      input = core.wrap(amp.stack(list, 1))
    end
    local h = core.amp_of(input)
    if h:dim() == 3 and h:size(1) ~= 3 and h:size(1) ~= 1 then h = h:unsqueeze(2) end
    if h:dim() < 4 then return input end
    padding = padding or 0
    local n, c, H0, W0 = h:size(1), h:size(2), h:size(3), h:size(4)
    local across = math.min(nrow or 6, n)
    local down = math.ceil(n / across)
    local grid = amp.full({c, down * (H0 + padding), across * (W0 + padding)}, h:max():item(), {dtype = h.dtype})
    for i = 1, n do
      local r, k = math.floor((i - 1) / across), (i - 1) % across
      grid:narrow(2, r * (H0 + padding) + 1, H0):narrow(3, k * (W0 + padding) + 1, W0):copy_(h[i])
    end
    return core.wrap(grid)
  end
  function I.display() require('amp.core.warn').warn 'image.display shows nothing here: image.save writes a file' end
  I.window = I.display
  function I.gaussian(o, ...)
    local size, sigma, amplitude, normalize = 3, 0.25, 1, false
    local w, h
    if type(o) == 'table' then
      size, sigma, amplitude, normalize = o.size or 3, o.sigma or 0.25, o.amplitude or 1, o.normalize or false
      w, h = o.width, o.height
    elseif o then
      size = o
      local s, a, n = ...
      sigma, amplitude, normalize = s or 0.25, a or 1, n or false
    end
    w, h = w or size, h or size
    local rows = {}
    for i = 1, h do
      rows[i] = {}
      for j = 1, w do
        local u, v = (j - (w / 2 + 0.5)) / (w * sigma), (i - (h / 2 + 0.5)) / (h * sigma)
        rows[i][j] = amplitude * math.exp(-(u * u + v * v) / 2)
      end
    end
    local t = torch.Tensor(rows)
    return normalize and t:div(t:sum()) or t
  end
  function I.gaussian1D(o, ...)
    local size = type(o) == 'table' and o.size or o or 3
    local sigma = type(o) == 'table' and o.sigma or (...) or 0.25
    local normalize = type(o) == 'table' and o.normalize or select(3, ...)
    local list = {}
    for i = 1, size do list[i] = math.exp(-((i - (size / 2 + 0.5)) / (size * sigma)) ^ 2 / 2) end
    local t = torch.Tensor(list)
    return normalize and t:div(t:sum()) or t
  end
  return I
end

-- -- lfs --------------------------------------------------------------------------------------------------

function M.lfs(paths)
  local L = {_VERSION = 'amp'}
  local kinds = {['regular file'] = 'file', ['regular empty file'] = 'file', directory = 'directory', ['symbolic link'] = 'link'}
  function L.attributes(path, name)
    local line = lines_of(("stat -L -c '%%F|%%s|%%Y|%%X|%%Z|%%i|%%h' %s 2>/dev/null"):format(quoted(path)))[1]
    if not line then return nil, ("cannot obtain information from file '%s': No such file or directory"):format(path), 2 end
    local kind, size, changed, access, meta, ino, links = line:match '^(.-)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)$'
    local a = {mode = kinds[kind] or 'other', size = tonumber(size), modification = tonumber(changed), access = tonumber(access), change = tonumber(meta),
      ino = tonumber(ino), nlink = tonumber(links)}
    if type(name) == 'string' then return a[name] end
    return a
  end
  L.symlinkattributes = L.attributes
  function L.dir(path)
    local list, i = paths.dir(path), 0
    if not list then error(('cannot open %s: No such file or directory'):format(path), 2) end
    return function()
      i = i + 1
      return list[i]
    end
  end
  function L.mkdir(path)
    if os.execute('mkdir ' .. quoted(path) .. ' 2>/dev/null') == 0 then return true end
    return nil, 'the folder could not be made', 17
  end
  function L.rmdir(path) return os.execute('rmdir ' .. quoted(path) .. ' 2>/dev/null') == 0 or nil end
  function L.currentdir() return paths.cwd() end
  function L.touch(path) return os.execute('touch ' .. quoted(path)) == 0 or nil end
  return L
end

return M
