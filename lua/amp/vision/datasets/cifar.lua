--- CIFAR10 and CIFAR100 from their binary files: 32 x 32 pictures of 10 or 100 classes.
local ffi = require 'ffi'
local amp = require 'amp'
local common = require 'amp.vision.datasets.common'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local util = require 'amp.util'
local raise = require('amp.error').throw

local Cifar = {}
Cifar.__index = Cifar
local PIXELS = 3 * 32 * 32

local kinds = {
  CIFAR10 = { folder = 'cifar-10-batches-bin', head = 1, classes = 10, test = { 'test_batch.bin' }, names = 'batches.meta.txt',
    train = { 'data_batch_1.bin', 'data_batch_2.bin', 'data_batch_3.bin', 'data_batch_4.bin', 'data_batch_5.bin' } },
  CIFAR100 = { folder = 'cifar-100-binary', head = 2, classes = 100, test = { 'test.bin' }, train = { 'train.bin' }, names = 'fine_label_names.txt' },
}

local function read_names(path)
  local text, list = require('amp.io.file').text(path), {}
  for line in (text or ''):gmatch '[^\r\n]+' do list[#list + 1] = line end
  return #list > 0 and list or nil
end

-- {root, train = true, transform}: root holds the files, or their folder.
local function maker(name)
  local kind, op = kinds[name], 'vision.datasets.' .. name
  return
  --- Pictures of 32 x 32 with their classes, from the binary files.
  -- @tparam string|table given the folder of the files, or root, train (true: the training pictures), transform (a function of
  --   a picture)
  function(given)
    if type(given) == 'string' then given = { root = given } end
    local o = options.read(op, given, { 'root', 'train', 'transform' }, { train = true })
    if type(o.root) ~= 'string' then raise(op, "root, the folder of the files, expected, got %s", util.show(o.root)) end
    options.boolean(op, 'train', o.train)
    common.check_transform(op, o.transform)
    local dir, files = o.root, o.train and kind.train or kind.test
    if not require('amp.io.file').open(dir .. '/' .. files[1]) then dir = dir .. '/' .. kind.folder end
    local self = { op = op, kind = kind, parts = {}, transform = o.transform, classes = read_names(dir .. '/' .. kind.names) }
    local record, n = kind.head + PIXELS, 0
    for k, file in ipairs(files) do
      local path = dir .. '/' .. file
      local bytes = common.text(op, path)
      if #bytes == 0 or #bytes % record ~= 0 then raise(op, "cannot read '%s': %d bytes are no records of %d", path, #bytes, record) end
      local p = ffi.cast('const uint8_t *', bytes)
      for i = 0, #bytes / record - 1 do
        local label = p[i * record + kind.head - 1]
        if label >= kind.classes then raise(op, "'%s': label %d of picture %d; there are %d classes", path, label, i + 1, kind.classes) end
      end
      n = n + #bytes / record
      self.parts[k] = { bytes = bytes, last = n }
    end
    self.n = n
    return proxy.wrap(setmetatable(self, Cifar))
  end
end

function Cifar:size() return self.n end

--- Picture i, float32 3 x 32 x 32 from 0 to 1, and its label, an int64 scalar from 1.
function Cifar:get(i)
  common.check_index(self.op, i, self.n)
  local k = 1
  while i > self.parts[k].last do k = k + 1 end
  local at = i - 1 - (k > 1 and self.parts[k - 1].last or 0)
  local p = ffi.cast('const uint8_t *', self.parts[k].bytes) + at * (self.kind.head + PIXELS)
  local x = amp.empty({ 3, 32, 32 }, { dtype = 'uint8', device = 'cpu' })
  ffi.copy(x:data_ptr(), p + self.kind.head, PIXELS)
  x = x:float() / 255
  if self.transform then x = self.transform(x) end
  return x, amp.tensor(p[self.kind.head - 1] + 1, { dtype = 'int64', device = 'cpu' })
end

proxy.dataset(Cifar, 'vision.datasets.CIFAR10')
function Cifar:__tostring() return ('%s (%d pictures)'):format(self.op, self.n) end
require('amp.core.class').guard(Cifar, 'vision.datasets.CIFAR10', 'set')

return { CIFAR10 = maker 'CIFAR10', CIFAR100 = maker 'CIFAR100' }
