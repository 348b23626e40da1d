--- What specs of text models share: the folders of small models, their expected values.
local amp = require 'amp'
local models = require 'amp.text.models'
local H = require 'spec.lib.helper'

local M = { root = H.root .. '/spec/fixtures/text/', device = H.device or 'cpu' }

--- A folder's model, on the device of the specs.
function M.load(name, given)
  given = given or {}
  given.device = M.device
  return models.from_pretrained(M.root .. name, given)
end

--- What transformers gave for it.
function M.expected(name)
  local out = amp.io.safetensors.load(M.root .. name .. '/expected.safetensors')
  for k, t in pairs(out) do out[k] = t:to(M.device) end
  return out
end

--- The largest difference over the largest value.
function M.off(got, want) return ((got:float() - want:float()):abs():max() / want:float():abs():max()):item() end

return M
