--- torch.Tester and torch.TestSuite: tests of scripts, counted and reported.
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'

return function(torch)
  --- A table of functions that refuses a name twice.
  function torch.TestSuite()
    local tests = {}
    return setmetatable({__tests = tests, __isTestSuite = true}, {
      __index = tests,
      __newindex = function(_, name, f)
        if tests[name] then error(("the test '%s' is there already"):format(tostring(name)), 2) end
        if type(f) ~= 'function' then error(("the test '%s' is no function"):format(tostring(name)), 2) end
        tests[name] = f
      end,
    })
  end

  local Tester = classes.class('torch.Tester', nil, torch)
  function Tester:__init()
    self.tests, self.errors, self.countasserts = {}, {}, 0
    self._assertionPass, self._warningCount, self.disabled = {}, 0, {}
  end

  -- Are two values equal up to a tolerance? Why not, as the second result.
  local function equal(a, b, tolerance, seen)
    if core.is_tensor(a) or core.is_tensor(b) then
      if not (core.is_tensor(a) and core.is_tensor(b)) then return false, 'a tensor and something else' end
      if not a:isSameSizeAs(b) then return false, ('sizes %s and %s'):format(core.show(a:size():totable()), core.show(b:size():totable())) end
      if a:nElement() == 0 then return true end
      local x, y = core.amp_of(a):double(), core.amp_of(b):double()
      local same = x:eq(y):logical_or((x - y):abs():le(tolerance)):logical_or(x:isnan():logical_and(y:isnan()))
      if same:all():item() then return true end
      return false, ('a difference of %g'):format((x - y):abs():max():item())
    end
    if core.is_storage(a) and core.is_storage(b) then return equal(a:totable(), b:totable(), tolerance, seen) end
    if type(a) == 'table' and type(b) == 'table' then
      if a == b or seen[a] == b then return true end
      seen[a] = b
      for k, v in pairs(a) do
        local ok, why = equal(v, b[k], tolerance, seen)
        if not ok then return false, ('at %s: %s'):format(tostring(k), why or '') end
      end
      for k in pairs(b) do
        if a[k] == nil then return false, ('at %s: nothing'):format(tostring(k)) end
      end
      return true
    end
    if type(a) == 'number' and type(b) == 'number' then
      if a == b or math.abs(a - b) <= tolerance or a ~= a and b ~= b then return true end
      return false, ('%.10g and %.10g'):format(a, b)
    end
    return a == b, ('%s and %s'):format(tostring(a), tostring(b))
  end

  -- message and tolerance in either order
  local function options(default, a, b)
    if type(a) == 'number' then return a, b end
    return type(b) == 'number' and b or default, a
  end
  local function check(self, ok, message, why)
    self.countasserts = self.countasserts + 1
    if ok then return true end
    local test = self.current or '?'
    table.insert(self.errors, ('%s\n%s%s'):format(test, tostring(message or 'the assertion failed'), why and ' (' .. why .. ')' or ''))
    self.failed = true
    if self.abort then error('stopped at the first failure', 0) end
    return false
  end

  function Tester:setEarlyAbort(v) self.abort = v end
  function Tester:setRethrowErrors(v) self.rethrow = v end
  function Tester:setSummaryOnly(v) self.summary = v end
  function Tester:assert(ok, message) return check(self, ok, message) end
  for name, f in pairs {
    assertlt = function(a, b) return a < b end, assertgt = function(a, b) return a > b end,
    assertle = function(a, b) return a <= b end, assertge = function(a, b) return a >= b end,
  } do
    Tester[name] = function(self, a, b, message) return check(self, f(a, b), message, ('%s, %s'):format(tostring(a), tostring(b))) end
  end
  local function eq(self, a, b, x, y)
    local tolerance, message = options(0, x, y)
    local ok, why = equal(a, b, tolerance, {})
    return check(self, ok, message, why)
  end
  local function ne(self, a, b, x, y)
    local tolerance, message = options(0, x, y)
    return check(self, not equal(a, b, tolerance, {}), message, 'they are equal')
  end
  for _, name in ipairs {'eq', 'assertGeneralEq', 'asserteq', 'assertTensorEq', 'assertTableEq'} do Tester[name] = eq end
  for _, name in ipairs {'ne', 'assertGeneralNe', 'assertne', 'assertTensorNe', 'assertTableNe'} do Tester[name] = ne end
  function Tester:assertalmosteq(a, b, x, y)
    local tolerance, message = options(1e-16, x, y)
    return check(self, math.abs(a - b) <= tolerance, message, ('%s, %s'):format(tostring(a), tostring(b)))
  end
  function Tester:assertError(f, message) return check(self, not pcall(f), message, 'there was no error') end
  function Tester:assertNoError(f, message)
    local ok, e = pcall(f)
    return check(self, ok, message, tostring(e))
  end
  function Tester:assertErrorMsg(f, text, message)
    local ok, e = pcall(f)
    return check(self, not ok and tostring(e) == text, message, tostring(e))
  end
  function Tester:assertErrorPattern(f, pattern, message)
    local ok, e = pcall(f)
    return check(self, not ok and tostring(e):find(pattern) ~= nil, message, tostring(e))
  end
  function Tester:assertErrorObj(f, compare, message)
    local ok, e = pcall(f)
    return check(self, not ok and compare(e), message, tostring(e))
  end

  --- Add a function, or all of a table.
  function Tester:add(f, name)
    if type(f) == 'table' then
      for k, v in pairs(f.__isTestSuite and f.__tests or f) do self:add(v, (name and name .. '_' or '') .. tostring(k)) end
    elseif name == '_setUp' then self.set_up = f
    elseif name == '_tearDown' then self.tear_down = f
    else self.tests[name or 'unknown'] = f end
    return self
  end
  function Tester:disable(names)
    for _, n in ipairs(type(names) == 'table' and names or {names}) do self.disabled[n] = true end
    return self
  end
  --- Run all tests, or those named; the process ends with 1 where one failed, unless setRethrowErrors.
  function Tester:run(names)
    local list = {}
    if type(names) == 'string' then names = {names} end
    for name in pairs(self.tests) do
      local wanted = not names
      for _, n in ipairs(names or {}) do wanted = wanted or n == name or name:find('^' .. n:gsub('%*', '.*') .. '$') ~= nil end
      if wanted and not self.disabled[name] then list[#list + 1] = name end
    end
    table.sort(list)
    local failures, broken = 0, 0
    for _, name in ipairs(list) do
      self.current, self.failed = name, false
      if self.set_up then self.set_up(name) end
      local ok, e = xpcall(self.tests[name], function(e) return tostring(e) .. '\n' .. debug.traceback() end)
      if self.tear_down then self.tear_down(name) end
      if not ok then
        if self.rethrow then error(e, 0) end
        broken = broken + 1
        table.insert(self.errors, ('%s\nan error: %s'):format(name, e))
      elseif self.failed then
        failures = failures + 1
      end
    end
    if not self.summary then
      for _, e in ipairs(self.errors) do io.stdout:write(e, '\n', ('-'):rep(80), '\n') end
    end
    io.stdout:write(('%d tests, %d asserts, %d failed, %d errors\n'):format(#list, self.countasserts, failures, broken))
    self.failures, self.broken = failures, broken
    if failures + broken > 0 then os.exit(1) end
  end
end
