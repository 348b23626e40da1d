--- amp.data: datasets, how they become batches, and what they are read from.
local files = {
  TensorDataset = 'amp.data.dataset', DistributedSampler = 'amp.data.distributed_sampler',
  DataLoader = 'amp.data.dataloader', mnist = 'amp.data.mnist', idx = 'amp.data.idx',
  read_image = 'amp.data.image', ImageFolder = 'amp.data.image_folder', Vocabulary = 'amp.data.vocabulary', TextDataset = 'amp.data.text',
  collate = 'amp.data.collate', Subset = 'amp.data.subsets', ConcatDataset = 'amp.data.subsets', random_split = 'amp.data.subsets',
  csv = 'amp.data.csv', WeightedRandomSampler = 'amp.data.weighted_sampler', write_image = 'amp.data.write_image',
}
local fields = {
  idx = 'read', read_image = 'read', Subset = 'Subset', ConcatDataset = 'ConcatDataset', random_split = 'random_split',
} -- of files that hold more than the thing itself

local M = {}

return setmetatable(M, {__index = function(_, name)
  local value
  if files[name] then
    value = require(files[name])
    if fields[name] then value = value[fields[name]] end
  elseif type(name) == 'string' and name:sub(1, 1) ~= '_' then
    local habits = require 'amp.core.habits'
    require('amp.error').throw_code('name', 'data', "it has no '%s'%s", name,
      habits.hint(habits.rooms['amp.data'], name, require('amp.util').keys(files)))
  end
  M[name] = value
  return value
end})
