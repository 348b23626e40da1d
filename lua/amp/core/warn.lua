--- Warnings and log lines: replaceable, a warning at most once per cause.
-- `amp.warn = function(message) ... end` and `amp.write_log = function(line) ... end` say where
-- they go; both default to standard error.
-- @module amp.core.warn
local M = {}

local weak = { __mode = 'k' } -- a cause may be an object, which this does not keep alive
local seen = setmetatable({}, weak)

M.module = {} -- init.lua puts the table amp here: what stands in it is what is called

--- Default of amp.warn.
-- @tparam string message
function M.to_stderr(message) io.stderr:write('amp: warning: ', tostring(message), '\n') end

--- Default of amp.write_log.
-- @tparam string line
function M.log_to_stderr(line) io.stderr:write(line, '\n') end

--- Warn once for a cause.
-- @tparam string message
-- @param ?cause string or object: what makes two warnings the same; default the message
function M.once(message, cause)
  cause = cause or message
  if seen[cause] then return end
  seen[cause] = true
  local sink = rawget(M.module, 'warn') or M.to_stderr
  sink(message)
end

--- A line of verbose output.
-- @tparam string line
function M.log(line)
  local sink = rawget(M.module, 'write_log') or M.log_to_stderr
  sink(line)
end

--- Forget what was warned of, so that it is warned of again.
function M.reset() seen = setmetatable({}, weak) end

return M
