--- nn.Embedding: rows of a table by index.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'

local Embedding = Module:extend('nn.Embedding')

--- nn.Embedding(num_embeddings, embedding_dim): rows drawn from a normal distribution.
function Embedding:init(...)
  local o = options.arguments('nn.Embedding', {'num_embeddings', 'embedding_dim'}, 2, {}, ...)
  self.num_embeddings = options.integer('nn.Embedding', 'num_embeddings', o.num_embeddings, 1)
  self.embedding_dim = options.integer('nn.Embedding', 'embedding_dim', o.embedding_dim, 1)
  self:register_parameter('weight', amp.empty(o.num_embeddings, o.embedding_dim))
  self:reset_parameters()
end

function Embedding:reset_parameters() initializers.normal_(self.weight) end

--- @tparam Tensor index integers of any shape, from 1
-- @treturn Tensor index's shape x embedding_dim
function Embedding:forward(index) return amp.embedding(index, self.weight) end

function Embedding:extra_repr() return string.format('%d x %d', self.num_embeddings, self.embedding_dim) end

return Embedding
