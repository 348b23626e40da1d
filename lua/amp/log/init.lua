--- amp.Logger: what a training run reports, to CSV and to TensorBoard; and reading it again.
--
--   local log = amp.Logger('runs/first')          -- methods in log/logger.lua
--   log:scalar('loss', loss, step)
--   log:close()
--   amp.plot.curves({loss = amp.Logger.read('runs/first').loss}):show()
local new = require 'amp.log.logger'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

--- The scalars of a run, as amp.plot.curves takes them.
-- @tparam string path a folder of a logger, or its log.csv
-- @treturn table name -> {steps, values}, `time` among the names
-- @raise with the file's name: not there, no log, damaged
function M.read(path)
  local op = 'Logger.read'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', util.show(path)) end
  if not path:match '%.csv$' then path = path:gsub('/+$', '') .. '/log.csv' end
  local columns, why = require('amp.log.csv').read(path)
  if not columns then raise(op, "cannot read '%s': %s", path, why) end
  return columns
end

return setmetatable(M, {__call = function(_, ...) return new(...) end})
