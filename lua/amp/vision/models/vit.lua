--- ViT-B/16 (Dosovitskiy et al., 2021): vit_b_16{classes = 1000, image_size = 224, dropout = 0}; input N x 3 x S x S.
-- Parameters are named as torchvision's: class_token, conv_proj, encoder.pos_embedding,
-- encoder.layers.encoder_layer_0.ln_1 (a name, not a place in a list), ..., encoder.ln, heads.head.
local amp = require 'amp'
local common = require 'amp.vision.models.common'
local options = require 'amp.options'
local raise = require('amp.error').throw
local util = require 'amp.util'
local nn = amp.nn

local WIDTH, HEADS, LAYERS, HIDDEN, PATCH = 768, 12, 12, 3072, 16

local Layer = nn.Module:extend 'EncoderBlock'

function Layer:init(dropout)
  self.ln_1 = nn.LayerNorm(WIDTH, { eps = 1e-6 })
  self.self_attention = nn.MultiheadAttention(WIDTH, HEADS, { batch_first = true })
  self.dropout = nn.Dropout(dropout)
  self.ln_2 = nn.LayerNorm(WIDTH, { eps = 1e-6 })
  self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Dropout(dropout), nn.Linear(HIDDEN, WIDTH), nn.Dropout(dropout))
  for _, i in ipairs { 1, 4 } do
    nn.init.xavier_uniform_(self.mlp[i].weight)
    nn.init.normal_(self.mlp[i].bias, 0, 1e-6)
  end
end

local function layer(self, x)
  local y = self.ln_1(x)
  x = x + self.dropout(self.self_attention(y, y, y, { need_weights = false }))
  return x + self.mlp(self.ln_2(x))
end

function Layer:forward(x) return amp.scope(layer, self, x) end

local Encoder = nn.Module:extend 'Encoder'

function Encoder:init(tokens, dropout)
  self:register_parameter('pos_embedding', nn.init.normal_(amp.empty(1, tokens, WIDTH), 0, 0.02))
  self.dropout = nn.Dropout(dropout)
  self.layers = nn.ModuleDict()
  for i = 0, LAYERS - 1 do self.layers['encoder_layer_' .. i] = Layer(dropout) end
  self.ln = nn.LayerNorm(WIDTH, { eps = 1e-6 })
end

function Encoder:forward(x)
  x = self.dropout(x + self.pos_embedding)
  for i = 0, LAYERS - 1 do x = self.layers['encoder_layer_' .. i](x) end
  return self.ln(x)
end

local ViT = nn.Module:extend 'VisionTransformer'

function ViT:init(given)
  local op = 'vision.models.vit_b_16'
  local o = common.options(op, given, { 'classes', 'image_size', 'dropout' }, { classes = 1000, image_size = 224, dropout = 0 })
  options.number(op, 'dropout', o.dropout, 0, 1)
  if options.integer(op, 'image_size', o.image_size, PATCH) % PATCH ~= 0 then
    raise(op, 'image_size %d is no multiple of the patches, which are %d', o.image_size, PATCH)
  end
  self.image_size = o.image_size
  self.conv_proj = nn.Conv2d(3, WIDTH, PATCH, { stride = PATCH })
  self:register_parameter('class_token', amp.zeros(1, 1, WIDTH))
  self.encoder = Encoder((o.image_size / PATCH) ^ 2 + 1, o.dropout)
  self.heads = nn.Module:extend 'Heads' ()
  self.heads.head = nn.Linear(WIDTH, o.classes)
  nn.init.normal_(self.conv_proj.weight, 0, (3 * PATCH * PATCH) ^ -0.5)
  nn.init.zeros_(self.conv_proj.bias)
  nn.init.zeros_(self.heads.head.weight)
  nn.init.zeros_(self.heads.head.bias)
end

function ViT:forward(x)
  common.check('vit_b_16', x, 3)
  local side = self.image_size
  if x:size(3) ~= side or x:size(4) ~= side then
    raise('vit_b_16', 'pictures of %d x %d expected, got %s', side, side, util.shape(x:size()))
  end
  x = self.conv_proj(x):flatten(3):transpose(2, 3)
  local first = self.class_token:expand(x:size(1), 1, WIDTH)
  if first.dtype ~= x.dtype then first = first:to(x.dtype) end
  x = self.encoder(amp.cat({ first, x }, 2))
  return self.heads.head(x:select(2, 1))
end

local M = {}

--- Vision transformer, base size, patches of 16 x 16.
-- @tparam ?table given classes (1000, or a list of names), image_size (224, a multiple of 16), dropout (0)
-- @treturn nn.Module N x 3 x S x S, S = image_size, to N x classes; names of parameters are torchvision's
-- @usage local net = amp.vision.models.vit_b_16{classes = 10, image_size = 32}
function M.vit_b_16(given) return ViT(given) end

return M
