--- Distances of two tensors as modules: CosineSimilarity, PairwiseDistance.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local cosine_similarity, pairwise_distance = amp.cosine_similarity, amp.pairwise_distance

local CosineSimilarity = Module:extend('nn.CosineSimilarity')

--- nn.CosineSimilarity(dim = 2, eps = 1e-8)
function CosineSimilarity:init(...)
  local op = 'nn.CosineSimilarity'
  local o = options.arguments(op, {'dim', 'eps'}, 0, {dim = 2, eps = 1e-8}, ...)
  self.dim, self.eps = options.integer(op, 'dim', o.dim), options.number(op, 'eps', o.eps, 0)
end

function CosineSimilarity:forward(x1, x2) return cosine_similarity(x1, x2, self.dim, self.eps) end

function CosineSimilarity:extra_repr() return 'dim ' .. self.dim end

local PairwiseDistance = Module:extend('nn.PairwiseDistance')

--- nn.PairwiseDistance(p = 2, eps = 1e-6, keepdim = false): norms of x1 - x2 + eps along the last dimension
function PairwiseDistance:init(...)
  local op = 'nn.PairwiseDistance'
  local o = options.arguments(op, {'p', 'eps', 'keepdim'}, 0, {p = 2, eps = 1e-6, keepdim = false}, ...)
  self.p, self.eps = options.number(op, 'p', o.p), options.number(op, 'eps', o.eps)
  self.keepdim = options.boolean(op, 'keepdim', o.keepdim)
end

function PairwiseDistance:forward(x1, x2) return pairwise_distance(x1, x2, self.p, self.eps, self.keepdim) end

function PairwiseDistance:extra_repr() return 'p ' .. self.p end

return {CosineSimilarity = CosineSimilarity, PairwiseDistance = PairwiseDistance}
