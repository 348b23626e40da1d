--- busted output handler: one line a file, each failure in full, and a closing
-- line `N passed, N failed` that spec/run.sh adds up. Skipped cases are named
-- with their reason and counted apart. The file that AMP_SPEC_NOW names holds the
-- name of the case at work, for a process that dies.
local clock = require('amp').clock

return function()
  local busted = require 'busted'
  local handler = require 'busted.outputHandlers.base'()
  local passed, failed, skipped = 0, 0, 0
  local problems = {}
  local start
  local now = os.getenv 'AMP_SPEC_NOW'
  now = now and io.open(now, 'w')

  local function text(message)
    if message == nil then return '(no message)' end
    if type(message) == 'table' and message.message then message = message.message end
    return tostring(message)
  end

  local function problem(kind, element, message, trace)
    failed = failed + 1
    local at = element.trace or trace or {}
    local line = ('%s: %s\n    %s:%s: %s'):format(kind, handler.getFullName(element), at.short_src or '?', at.currentline or '?',
      (text(message):gsub('\n', '\n    ')))
    if type(message) ~= 'table' and trace and trace.traceback then
      line = line .. (trace.traceback:gsub('^\n?', '\n'):gsub('\n', '\n      '))
    end
    problems[#problems + 1] = line
    io.write(line, '\n')
    io.flush()
    return nil, true
  end

  handler.testStart = function(element)
    if now then
      now:seek 'set'
      now:write(handler.getFullName(element), (' '):rep(200), '\n')
      now:flush()
    end
    return nil, true
  end
  handler.testEnd = function(element, _, status)
    if status == 'success' then
      passed = passed + 1
    elseif status == 'pending' then
      skipped = skipped + 1
    end
    if os.getenv('AMP_SPEC_VERBOSE') then io.write(status, ': ', handler.getFullName(element), '\n') io.flush() end
    return nil, true
  end
  handler.testFailure = function(element, _, message, trace) return problem('FAILED', element, message, trace) end
  handler.testError = function(element, _, message, trace) return problem('ERROR', element, message, trace) end
  handler.pending = function(element, _, message)
    io.write('skipped: ', handler.getFullName(element), message and (': ' .. text(message)) or '', '\n')
    return nil, true
  end
  handler.fileStart = function() start = clock() return nil, true end
  handler.fileEnd = function(file)
    io.write(('%-32s %6.2f s\n'):format((file.name or '?'):gsub('^%./', ''), clock() - (start or 0)))
    io.flush()
    return nil, true
  end
  handler.suiteEnd = function()
    if skipped > 0 then io.write(skipped, ' skipped\n') end
    io.write(passed, ' passed, ', failed, ' failed\n')
    io.flush()
    return nil, true
  end

  busted.subscribe({ 'test', 'start' }, handler.testStart)
  busted.subscribe({ 'test', 'end' }, handler.testEnd)
  busted.subscribe({ 'failure', 'it' }, handler.testFailure)
  busted.subscribe({ 'error', 'it' }, handler.testError)
  for _, what in ipairs { 'file', 'describe', 'setup', 'teardown', 'before_each', 'after_each', 'lazy_setup', 'lazy_teardown' } do
    busted.subscribe({ 'error', what }, handler.testError)
    busted.subscribe({ 'failure', what }, handler.testError)
  end
  busted.subscribe({ 'pending', 'it' }, handler.pending)
  busted.subscribe({ 'file', 'start' }, handler.fileStart)
  busted.subscribe({ 'file', 'end' }, handler.fileEnd)
  busted.subscribe({ 'suite', 'end' }, handler.suiteEnd)
  return handler
end
