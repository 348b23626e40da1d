--- nn.Embedding and nn.EmbeddingBag: rows of a table by index, one by one or summed by bags.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'
local raise = require('amp.error').throw

local Table = Module:extend('nn.EmbeddingTable')

-- what PyTorch has and this has not
local refused = {
  sparse = 'gradients of tables are dense',
  scale_grad_by_freq = "gradients are not divided by how often a row is used; divide the table's gradient before the step",
}

-- What both have: the table, a row that stands for nothing, a largest norm of rows.
function Table:build(o)
  local op = self.__name
  self.num_embeddings = options.integer(op, 'num_embeddings', o.num_embeddings, 1)
  self.embedding_dim = options.integer(op, 'embedding_dim', o.embedding_dim, 1)
  local p, n = o.padding_idx, o.num_embeddings
  if p ~= nil then
    options.integer(op, 'padding_idx', p)
    if p == 0 or p > n or p < -n then raise(op, 'padding_idx %d is out of range for %d embeddings (1..%d, or negative from the end)', p, n, n) end
    self.padding_idx = p > 0 and p or n + 1 + p
  end
  self.max_norm = o.max_norm and options.number(op, 'max_norm', o.max_norm, 0)
  self.norm_type = options.number(op, 'norm_type', o.norm_type)
  self:register_parameter('weight', amp.empty(n, o.embedding_dim))
  self:reset_parameters()
end

--- Draw the table anew: normal, the row `padding_idx` zeros.
function Table:reset_parameters()
  initializers.normal_(self.weight)
  if self.padding_idx then initializers.zeros_(self.weight[self.padding_idx]) end
end

-- Scale down, in place, those of the rows in use whose norm is too large.
local function limit(self, index)
  if not self.max_norm or not amp.is_tensor(index) or index:numel() == 0 then return end -- what is no tensor the op refuses
  amp.no_grad(function()
    local at = index:reshape(-1)
    local rows = amp.index_select(self.weight, 1, at)
    local norm = rows:norm(self.norm_type, 2, true)
    local factor = amp.where(norm:gt(self.max_norm), self.max_norm / (norm + 1e-7), 1)
    self.weight[at] = rows * factor
  end)
end

function Table:extra_repr()
  local parts = {string.format('%d x %d', self.num_embeddings, self.embedding_dim)}
  if self.mode and self.mode ~= 'mean' then parts[2] = self.mode end
  if self.padding_idx then parts[#parts + 1] = 'padding ' .. self.padding_idx end
  if self.max_norm then parts[#parts + 1] = 'norm up to ' .. self.max_norm end
  return table.concat(parts, ', ')
end

-- -- Embedding ---------------------------------------------------------------------

local Embedding = Table:extend('nn.Embedding')

--- Make a table, drawn from a normal distribution.
-- @tparam number num_embeddings rows
-- @tparam number embedding_dim their size
-- @tparam ?table options padding_idx (a row that starts as zeros and gets no gradient), max_norm (rows in use are scaled
-- down to it, in place), norm_type (2)
-- @usage nn.Embedding(1000, 64, {padding_idx = 1})
function Embedding:init(...)
  self:build(options.arguments(self.__name, {'num_embeddings', 'embedding_dim', 'padding_idx', 'max_norm', 'norm_type', refused = refused}, 2,
    {norm_type = 2}, ...))
end

--- @tparam Tensor index integers of any shape, from 1
-- @treturn Tensor index's shape x embedding_dim
function Embedding:forward(index)
  limit(self, index)
  return amp.embedding(index, self.weight, self.padding_idx)
end

--- A layer with a given table.
-- @tparam Tensor weight rows x size; taken over, not copied
-- @tparam ?table given freeze (true: not trained), and Embedding's options
-- @usage nn.Embedding.from_pretrained(amp.load('vectors.safetensors').weight)
function Embedding.from_pretrained(weight, given)
  local op = 'nn.Embedding.from_pretrained'
  local o = options.read(op, given, {'freeze', 'padding_idx', 'max_norm', 'norm_type'}, {freeze = true})
  if not amp.is_tensor(weight) then raise(op, 'a matrix (rows x size) expected, got %s', require('amp.util').kind(weight)) end
  if weight:dim() ~= 2 then raise(op, 'a matrix (rows x size) expected, got shape %s', tostring(weight:size())) end
  options.boolean(op, 'freeze', o.freeze)
  local m = Embedding(weight:size(1), weight:size(2), {padding_idx = o.padding_idx, max_norm = o.max_norm, norm_type = o.norm_type})
  m:register_parameter('weight', weight:detach())
  m.weight.requires_grad = not o.freeze
  return m
end

-- -- EmbeddingBag ------------------------------------------------------------------

local EmbeddingBag = Table:extend('nn.EmbeddingBag')

--- A table whose rows are summed, averaged or maximised by bags.
-- @tparam number num_embeddings
-- @tparam number embedding_dim
-- @tparam ?table options max_norm, norm_type (2), mode ('mean', 'sum' or 'max'), include_last_offset (false), padding_idx
function EmbeddingBag:init(...)
  local o = options.arguments(self.__name,
    {'num_embeddings', 'embedding_dim', 'max_norm', 'norm_type', 'mode', 'include_last_offset', 'padding_idx', refused = refused}, 2,
    {norm_type = 2, mode = 'mean', include_last_offset = false}, ...)
  if o.mode ~= 'mean' and o.mode ~= 'sum' and o.mode ~= 'max' then raise(self.__name, "mode must be 'mean', 'sum' or 'max', got '%s'", tostring(o.mode)) end
  self.mode, self.include_last_offset = o.mode, options.boolean(self.__name, 'include_last_offset', o.include_last_offset)
  self:build(o)
end

--- @tparam Tensor index bags x indices; or a vector, with offsets
-- @tparam ?Tensor offsets where in the vector each bag starts, from 1
-- @tparam ?Tensor per_sample_weights factors of rows, for mode 'sum'
-- @treturn Tensor bags x embedding_dim
function EmbeddingBag:forward(index, offsets, per_sample_weights)
  limit(self, index)
  return amp.embedding_bag(index, self.weight, offsets, self.mode, per_sample_weights, self.include_last_offset, self.padding_idx)
end

return {Embedding = Embedding, EmbeddingBag = EmbeddingBag}
