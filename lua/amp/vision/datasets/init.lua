--- amp.vision.datasets: pictures with labels, boxes or masks. Each is loaded when it is first named.
local rooms = {
  shapes = 'amp.vision.datasets.shapes', CIFAR10 = 'amp.vision.datasets.cifar', CIFAR100 = 'amp.vision.datasets.cifar',
  VOCDetection = 'amp.vision.datasets.voc', COCODetection = 'amp.vision.datasets.coco', ImageFolder = 'amp.data.image_folder',
}
local fields = { CIFAR10 = true, CIFAR100 = true }

return setmetatable({}, { __index = function(t, name)
  if rooms[name] then
    local v = require(rooms[name])
    if fields[name] then v = v[name] end
    rawset(t, name, v)
    return v
  end
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  local util = require 'amp.util'
  require('amp.error').throw_code('name', 'vision.datasets', "there is no '%s'%s", name, util.hint(name, util.keys(rooms)))
end })
