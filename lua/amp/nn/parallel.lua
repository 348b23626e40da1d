--- nn.parallel: networks on several ranks.
-- @module amp.nn.parallel
return { DistributedDataParallel = require 'amp.parallel.data_parallel' }
