--- amp.vision.models: networks of the field, a file a family, loaded when one is first named. Each is a function
-- of one table of options that gives an nn.Module; parameters have torchvision's names, lists counted from 1
-- (`net:load_state_dict(state, {names = 'pytorch'})` takes files that count from 0).
-- @module amp.vision.models
local err = require 'amp.error'

local families = {
  resnet = { 'resnet18', 'resnet34', 'resnet50', 'resnet101', 'resnet152' },
  mobilenet = { 'mobilenet_v2' },
  vgg = { 'vgg16' },
  vit = { 'vit_b_16' },
  unet = { 'unet' },
  ssd_resnet = { 'ssd_512_resnet50_v1' },
  ssd_vgg = { 'ssd_300_vgg16' },
}
local family_of = {}
for file, names in pairs(families) do
  for _, name in ipairs(names) do family_of[name] = file end
end

local M = {}

err.space(M, 'amp.vision.models')

return setmetatable(M, { __index = function(t, name)
  if family_of[name] then
    local make = require('amp.vision.models.' .. family_of[name])[name]
    rawset(t, name, make)
    return make
  end
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  local util = require 'amp.util'
  err.throw_code('name', 'vision.models', "there is no model '%s'%s", name, util.hint(name, util.keys(family_of)))
end })
