--- ImageFolder: a dataset of images, one folder a class.
--
--   local set = amp.data.ImageFolder('pets', {size = 64})     -- pets/cat/*.jpg, pets/dog/*.png, ...
--   print(set.classes[1], set:size())                         -- cat
--   for x, y in amp.data.DataLoader(set, {batch_size = 32, shuffle = true, workers = 2}):iter() do ... end
--
-- Images are read when they are asked for (data/image.lua); folders in a class's folder belong to it.
local amp = require 'amp'
local folders = require 'amp.data.folders'
local image = require 'amp.data.image'
local limit = require 'amp.io.limit'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local skip_bad = require 'amp.data.skip_bad'
local util = require 'amp.util'
local raise = require('amp.error').throw

local endings = {png = true, jpg = true, jpeg = true, webp = true, ppm = true, pgm = true, pbm = true, pnm = true}

-- Paths of the images in a folder and those below it, sorted. A folder that links lead to again is read once.
local function images(op, dir, out, seen)
  local real = folders.real(dir)
  if seen[real] then return out end
  seen[real] = true
  local list, why = folders.list(dir)
  if not list then raise(op, "cannot read the folder '%s': %s", dir, why) end
  for _, e in ipairs(list) do
    local path = dir .. '/' .. e.name
    if e.folder then images(op, path, out, seen)
    elseif endings[(e.name:match '%.(%w+)$' or ''):lower()] then out[#out + 1] = path end
  end
  return out
end

local function callable(v)
  local meta = type(v) == 'table' and getmetatable(v)
  return type(v) == 'function' or type(meta) == 'table' and meta.__call ~= nil
end

local function base() return require 'amp.vision.transforms.base' end

local ImageFolder = {}
ImageFolder.__index = ImageFolder

--- Make a dataset of images, each folder in `root` being a class.
-- @tparam string|table root the folder; or options alone with the folder as `root`, as of the other sets: ImageFolder{root = 'pets'}
-- @tparam ?table given channels (3), size ({height, width} or one number: images are brought to it; needed for batches of
-- images of unequal sizes), transform (function of an image that gives what is used instead), max_bytes (of an image, as of read_image),
-- skip_bad (false: an image that cannot be read is an error; true: the next one takes its place, with its label and one warning),
-- reduced (false: every pixel is decoded; true: a JPEG at least twice as large as `size`, or as a transform's first crop or Resize, wants it
-- is decoded at a half, a quarter or an eighth of its sides, several times as quick; values differ a little)
-- @treturn table a dataset with classes (names, sorted), class_to_index, files, labels
local function new(_, root, given)
  local op = 'data.ImageFolder'
  if given == nil and type(root) == 'table' and getmetatable(root) == nil and root.root ~= nil then
    given = {}
    for k, v in pairs(root) do if k ~= 'root' then given[k] = v end end
    root = root.root
  end
  if type(root) ~= 'string' then raise(op, 'a folder expected, got %s', util.show(root)) end
  local o = options.read(op, given, {'channels', 'size', 'transform', 'max_bytes', 'skip_bad', 'reduced'},
    {channels = 3, skip_bad = false, reduced = false})
  image.check_channels(op, o.channels)
  limit.check(op, o.max_bytes)
  options.boolean(op, 'skip_bad', o.skip_bad)
  options.boolean(op, 'reduced', o.reduced)
  if o.transform ~= nil and not callable(o.transform) then raise(op, 'transform must be a function, got %s', util.show(o.transform)) end
  local self = setmetatable({root = root, channels = o.channels, max_bytes = o.max_bytes,
    resize = o.size and options.list(op, 'size', o.size, 2, 1), transform = o.transform, skip_bad = o.skip_bad, reduced = o.reduced, op = op,
    classes = {}, class_to_index = {}, files = {}, labels = {}}, ImageFolder)
  local list, why = folders.list(root)
  if not list then raise(op, "cannot read the folder '%s': %s", root, why) end
  for _, e in ipairs(list) do
    if e.folder and not e.name:match '^%.' then
      local paths = images(op, root .. '/' .. e.name, {}, {})
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
  return proxy.wrap(self)
end

--- Number of images.
function ImageFolder:size() return #self.files end

local function load(self, i, parts) return image.read_any(self.op, self.files[i], self.channels, self.max_bytes, parts) end

--- Image i: float32, channels x height x width from 0 to 1; and its label, from 1, an int64 scalar.
function ImageFolder:get(i)
  if not self.files[i] then raise('data.ImageFolder', 'there is no image %s; there are %d', tostring(i), #self.files) end
  local s, parts, finish = self.resize, nil, nil
  if s then
    if self.reduced then parts = function(h, w) return base().divisor(h, w, s) end end
  elseif self.transform then parts, finish = base().ahead(self.transform, self.reduced) end
  local bytes, k = skip_bad(self, i, #self.files, load, parts)
  local x
  if finish then x = finish(bytes)
  else
    x = bytes:contiguous():float():div_(255)
    if s and (x:size(2) ~= s[1] or x:size(3) ~= s[2]) then
      x = amp.interpolate(x:unsqueeze(1), {size = s, mode = 'bilinear', antialias = true})[1]
    end
    if self.transform then x = self.transform(x) end
  end
  return x, amp.tensor(self.labels[k], {dtype = 'int64', device = 'cpu'})
end

proxy.dataset(ImageFolder, 'data.ImageFolder')

function ImageFolder:__tostring()
  return ('data.ImageFolder (%s: %d images of %d classes)'):format(self.root, #self.files, #self.classes)
end

require('amp.core.class').guard(ImageFolder, 'data.ImageFolder', 'set')

return setmetatable({class = ImageFolder}, {__call = new})
