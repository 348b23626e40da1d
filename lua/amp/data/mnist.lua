--- MNIST, or anything in its four files.
local C = require('amp.ffi').C
local file = require 'amp.io.file'
local idx = require 'amp.data.idx'
local TensorDataset = require 'amp.data.dataset'
local raise = require('amp.error').throw

local files = {
  train = {'train-images-idx3-ubyte', 'train-labels-idx1-ubyte'},
  test = {'t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte'},
}

local function find(dir, name)
  local fine, why = file.usable(dir)
  if not fine then raise('data.mnist', string.format("cannot read '%s': %s", dir, why)) end
  for _, ending in ipairs {'.gz', ''} do
    local path = dir .. '/' .. name .. ending
    if C.amp_file_kind(path, 1, nil) ~= C.AMP_FILE_NONE then return path end
  end
  raise('data.mnist', string.format("no '%s.gz' and no '%s' in '%s'", name, name, dir))
end

local function part(dir, names, given)
  local image_file, label_file = find(dir, names[1]), find(dir, names[2])
  local images, labels = idx.read(image_file, given), idx.read(label_file, given)
  if images:dim() ~= 3 or images.dtype ~= 'uint8' then
    raise('data.mnist', string.format("'%s' holds %s of %s, expected images, N x height x width of uint8",
      image_file, tostring(images:size()), images.dtype))
  end
  if labels:dim() ~= 1 or labels.dtype ~= 'uint8' then
    raise('data.mnist', string.format("'%s' holds %s of %s, expected labels, N of uint8",
      label_file, tostring(labels:size()), labels.dtype))
  end
  if images:size(1) ~= labels:size(1) then
    raise('data.mnist', string.format("%d images in '%s' but %d labels in '%s'",
      images:size(1), image_file, labels:size(1), label_file))
  end
  return TensorDataset(images:float():unsqueeze(2) / 255, labels:long() + 1)
end

--- Read MNIST's files.
-- @tparam string dir folder with train-images-idx3-ubyte, train-labels-idx1-ubyte,
-- t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz
-- @tparam ?table given max_bytes, as of amp.data.idx
-- @treturn table {train =, test =}: datasets of images, float32 N x 1 x 28 x 28
-- from 0 to 1, and labels, int64 N from 1 to 10 (digit + 1)
-- @usage local digits = amp.data.mnist('examples/data')
return function(dir, given)
  if type(dir) ~= 'string' then raise('data.mnist', 'a folder expected, got ' .. require('amp.util').kind(dir)) end
  return {train = part(dir, files.train, given), test = part(dir, files.test, given)}
end
