--- amp.vision: models, ops, transforms and data sets of pictures. Each room is loaded when it is first named.
-- @module amp.vision
local err = require 'amp.error'

local rooms = {
  models = 'amp.vision.models', ops = 'amp.vision.ops', transforms = 'amp.vision.transforms', datasets = 'amp.vision.datasets',
  SSDMultiBoxLoss = 'amp.vision.multibox_loss',
}

local M = {}

err.space(M, 'amp.vision')

return setmetatable(M, { __index = function(t, name)
  if rooms[name] then
    local room = require(rooms[name])
    rawset(t, name, room)
    return room
  end
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  local util = require 'amp.util'
  err.throw_code('name', 'vision', "there is no '%s'%s", name, util.hint(name, util.keys(rooms)))
end })
