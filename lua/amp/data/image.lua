--- Images from files: amp.data.read_image(path), and amp.data.ImageFolder, a dataset of one folder a class.
--
--   local set = amp.data.ImageFolder('pets', {size = 64})     -- pets/cat/*.jpg, pets/dog/*.png, ...
--   print(set.classes[1], set:size())                         -- cat
--   for x, y in amp.data.DataLoader(set, {batch_size = 32, shuffle = true, workers = 2}):iter() do ... end
--
-- PNG, JPEG, PPM, PGM and PBM are read, by what they hold and not by their names' endings.
local ffi = require 'ffi'
local amp = require 'amp'
local file = require 'amp.io.file'
local folders = require 'amp.data.folders'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

-- -- One file ---------------------------------------------------------------------------------------

local decoders = {'amp.data.jpeg', 'amp.data.png', 'amp.data.pnm'}

local function decode(bytes)
  for _, name in ipairs(decoders) do
    local d = require(name)
    if d.is(bytes) then return d.decode(bytes) end
  end
  return nil, 'it is no PNG, JPEG, PPM, PGM or PBM'
end

-- Planes of interleaved pixels, as many as asked for.
local function planes(p, w, h, have, want)
  local out = amp.empty({want, h, w}, {dtype = 'uint8', device = 'cpu'})
  local to, n = ffi.cast('uint8_t *', out:data_ptr()), w * h
  local gray, alpha = have <= 2, have == 2 or have == 4
  if want == 1 and not gray then
    for i = 0, n - 1 do -- the luma of ITU-R BT.601, in whole numbers
      local at = i * have
      to[i] = bit.rshift(p[at] * 19595 + p[at + 1] * 38470 + p[at + 2] * 7471 + 32768, 16)
    end
    return out
  end
  for c = 0, want - 1 do
    local from = c == 3 and have - 1 or gray and 0 or c
    local plane = to + c * n
    if c == 3 and not alpha then ffi.fill(plane, n, 255)
    else for i = 0, n - 1 do plane[i] = p[i * have + from] end end
  end
  return out
end

local function read(op, path, channels)
  local f, size = file.open(path)
  if not f then raise(op, "cannot read '%s': %s", path, size) end
  local bytes = f:read(size) or ''
  f:close()
  local p, w, h, have = decode(bytes)
  if not p then raise(op, "cannot read '%s': %s", path, w) end
  return planes(p, w, h, have, channels or (have == 2 and 4 or have))
end

local function check_channels(op, v)
  if v ~= nil and v ~= 1 and v ~= 3 and v ~= 4 then raise(op, 'channels must be 1 (gray), 3 (RGB) or 4 (RGBA), got %s', util.show(v)) end
  return v
end

--- Read an image.
-- @tparam string path
-- @tparam ?table given channels: 1 (gray), 3 (RGB) or 4 (with alpha); as the file has them
-- @treturn Tensor uint8, channels x height x width, on the CPU
-- @raise with the file's name: missing, no image, damaged, cut off
-- @usage local x = amp.data.read_image('cat.jpg'):float() / 255
function M.read(path, given)
  local op = 'data.read_image'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', util.show(path)) end
  local o = options.read(op, given, {'channels'}, {})
  return read(op, path, check_channels(op, o.channels))
end

-- -- Folders -------------------------------------------------------------------------------------------

local endings = {png = true, jpg = true, jpeg = true, ppm = true, pgm = true, pbm = true, pnm = true}

-- Paths of the images in a folder and those below it, sorted.
local function images(op, dir, out)
  local list, why = folders.list(dir)
  if not list then raise(op, "cannot read the folder '%s': %s", dir, why) end
  for _, e in ipairs(list) do
    local path = dir .. '/' .. e.name
    if e.folder then images(op, path, out)
    elseif endings[(e.name:match '%.(%w+)$' or ''):lower()] then out[#out + 1] = path end
  end
  return out
end

local ImageFolder = {}
ImageFolder.__index = ImageFolder

--- Make a dataset of images, each folder in `root` being a class.
-- @tparam string root
-- @tparam ?table given channels (3), size ({height, width} or one number: images are brought to it; needed for batches of
-- images of unequal sizes), transform (function of an image that gives what is used instead)
-- @treturn table a dataset with classes (names, sorted), class_to_index, files, labels
local function new(_, root, given)
  local op = 'data.ImageFolder'
  if type(root) ~= 'string' then raise(op, 'a folder expected, got %s', util.show(root)) end
  local o = options.read(op, given, {'channels', 'size', 'transform'}, {channels = 3})
  check_channels(op, o.channels)
  if o.transform ~= nil and type(o.transform) ~= 'function' then raise(op, 'transform must be a function, got %s', util.show(o.transform)) end
  local self = setmetatable({root = root, channels = o.channels, resize = o.size and options.list(op, 'size', o.size, 2, 1), transform = o.transform,
    classes = {}, class_to_index = {}, files = {}, labels = {}}, ImageFolder)
  local list, why = folders.list(root)
  if not list then raise(op, "cannot read the folder '%s': %s", root, why) end
  for _, e in ipairs(list) do
    if e.folder and not e.name:match '^%.' then
      local paths = images(op, root .. '/' .. e.name, {})
      if #paths == 0 then raise(op, "there are no images in '%s/%s'; each folder in '%s' is a class", root, e.name, root) end
      local class = #self.classes + 1
      self.classes[class], self.class_to_index[e.name] = e.name, class
      for _, path in ipairs(paths) do
        self.files[#self.files + 1] = path
        self.labels[#self.labels + 1] = class
      end
    end
  end
  if #self.classes == 0 then raise(op, "'%s' has no folders; each folder in it is a class, and holds its images", root) end
  return self
end

--- Number of images.
function ImageFolder:size() return #self.files end

--- Image i: float32, channels x height x width from 0 to 1; and its label, from 1, an int64 scalar.
function ImageFolder:get(i)
  local path = self.files[i]
  if not path then raise('data.ImageFolder', 'there is no image %s; there are %d', tostring(i), #self.files) end
  local x = read('data.ImageFolder', path, self.channels):float() / 255
  local s = self.resize
  if s and (x:size(2) ~= s[1] or x:size(3) ~= s[2]) then
    x = amp.interpolate(x:unsqueeze(1), {size = s, mode = 'bilinear', antialias = true})[1]
  end
  if self.transform then x = self.transform(x) end
  return x, amp.tensor(self.labels[i], {dtype = 'int64', device = 'cpu'})
end

function ImageFolder:__tostring()
  return ('data.ImageFolder (%s: %d images of %d classes)'):format(self.root, #self.files, #self.classes)
end

M.ImageFolder = setmetatable({class = ImageFolder}, {__call = new})

return M
