--- `amp new op NAME`, in the source tree: lays out an op of one tensor, element by element, in five places: its row, its
-- kernels on the CPU and on GPUs, its derivative, a sample. As laid out it gives its input; the formulas may be given as
-- options, or are written afterwards where the line of NAME stands (examples/guide/extending.md).
-- @module amp.cli.new_op

local usage = [[
usage: amp new op NAME [options]     in amp's source tree
  --formula 'EXPRESSION'      in C, of the element a: 'fabs(a) - log1p(fabs(a))'
  --derivative 'EXPRESSION'   dy/dx by recorded ops, of X (the input) and Y (the result): 'OP1(sign, X)'
  --sample 'x=y x=y ...'      values of a trusted implementation
  --policy CLASS              its autocast class: passthrough (default), fp32, lower, ...
  --doc 'SENTENCE'            what help and the manual say

An op with attributes or with two inputs is added by hand: examples/guide/extending.md goes through one of each.
]]
local known = { formula = true, derivative = true, sample = true, policy = true, doc = true }
local classes = { 'passthrough', 'lower', 'fp32', 'fp32_unless_dtype', 'promote', 'special', 'banned' }
for _, class in ipairs(classes) do classes[class] = true end

local function read(path)
  local f = io.open(path, 'rb')
  if not f then return nil end
  local text = f:read '*a'
  f:close()
  return text
end

local function write(path, text)
  local f, why = io.open(path, 'wb')
  if not f then return nil, why end
  local ok, failed = f:write(text)
  local closed = f:close()
  return ok and closed, failed or why
end

-- The formula once in each type: functions and constants of float32 have names of their own in C.
local vector = { exp = 1, exp2 = 1, expm1 = 1, log = 1, log2 = 1, log10 = 1, log1p = 1, tanh = 1, erf = 1 }
local function constants(formula, form)
  return (formula:gsub('%f[%w_.](%d*%.?%d+[%w.]*)', function(word)
    if not word:find '^[%d.]+[eE]?%d*$' or not word:find '[.eE]' then return word end
    return form:format(word)
  end))
end
local function in_float(formula)
  return constants(formula:gsub('%f[%w_](%a[%w_]*)(%s*%()', function(name, rest)
    return (vector[name] and 'amp__' .. name .. 'f' or name .. 'f') .. rest
  end), '%sf')
end

--- A call of a macro on one line, or, where that is too long, its last argument on a line of its own.
local function laid_out(head, last, indent)
  local line = ('%s %s)'):format(head, last)
  return #line <= 120 and line or ('%s\n%s%s)'):format(head, (' '):rep(indent), last)
end

-- A number as Lua source
local function number(word)
  local value = tonumber(word)
  if not value then return nil end
  if value ~= value then return '0 / 0' end
  if math.abs(value) == math.huge then return value > 0 and '1 / 0' or '-1 / 0' end
  return word
end

-- The entry of spec/ops/samples/math.lua
local function entry(name, o)
  local samples, inputs, outputs = o.sample or '0.5=0.5 -1.5=-1.5 2=2', {}, {}
  for x, y in samples:gmatch '([^%s=]+)=([^%s=]+)' do
    local input, output = number(x), number(y)
    if not (input and output) then return nil, ('--sample: %s=%s are no numbers'):format(x, y) end
    inputs[#inputs + 1], outputs[#outputs + 1] = input, output
  end
  if #inputs == 0 then return nil, '--sample takes pairs: x=y x=y' end
  local lines = { ('    %s = {'):format(name) }
  if o.policy and o.policy ~= 'passthrough' then lines[2] = ("      policy = '%s',"):format(o.policy) end
  for i = 1, #inputs, 3 do -- a case has a few values, so that its line is short
    local last = math.min(i + 2, #inputs)
    lines[#lines + 1] = ('      { inp = { { %s } }, out = { { %s } } },'):format(table.concat(inputs, ', ', i, last), table.concat(outputs, ', ', i, last))
  end
  lines[#lines + 1] = '    },'
  return table.concat(lines, '\n')
end

--- What is put where: file, the line after which, the text.
local function pieces(name, o)
  local sample, why = entry(name, o)
  if not sample then return nil, why end
  local formula = o.formula or 'a'
  local derivative = o.derivative
  local slope = derivative and ('OP2(mul, GRAD(b), %s)'):format(derivative) or 'GRAD(b)'
  local saved = {}
  if not derivative or derivative:find '%f[%w_]X%f[^%w_]' then saved[1] = 'I0' end
  if derivative and derivative:find '%f[%w_]Y%f[^%w_]' then saved[#saved + 1] = 'O0' end
  local doc = o.doc or name .. ' of each element.'
  return {
    { 'src/amp_ops.def', 'AMP_OP(K, softsign,', ('AMP_OP(K, %s, "input", unary, %s, F_, %s, EW | IP | ME, "%s")'):format(name,
      (o.policy or 'passthrough'):upper(), saved[1] and table.concat(saved, ' | ') or '0', doc:find '%.$' and doc or doc .. '.') },
    { 'src/ops/elementwise/activation.c', 'FLOAT2(softsign,', laid_out(('FLOAT2(%s, 4, %s,'):format(name, in_float(formula)), formula, 7) },
    { 'src/ops/elementwise/math_derivative.c', 'BWD(relu,', laid_out(('BWD(%s,'):format(name), slope, 4) },
    { 'kernels/elementwise/unary_formulas.h', 'ROW(softsign,', laid_out(('ROW(%s, SHARED,'):format(name), constants(formula, '(T)%s'), 4) },
    { 'spec/ops/samples/math.lua', '  by_hand = {', sample },
  }
end

local function put(text, after, piece)
  local at = text:find('\n' .. after, 1, true)
  local last = at and text:find('\n', at + 1, true)
  if not last then return nil end
  return text:sub(1, last) .. piece .. '\n' .. text:sub(last + 1)
end

local function refuse(status, text)
  io.stderr:write('amp: ', text, '\n')
  return status
end

--- @param name the op's; nil: only says how it is used
-- @param ... options
-- @treturn number exit status
return function(name, ...)
  local options, given = {}, { ... }
  if name == nil then return refuse(2, 'new op takes a name\n' .. usage) end
  if name == '--help' or given[1] == '--help' then
    io.write(usage)
    return 0
  end
  for i = 1, #given, 2 do
    local key = given[i]:match '^%-%-(%l+)$'
    if not known[key] or not given[i + 1] then return refuse(2, ('unknown option, or one without a value: %s\n%s'):format(given[i], usage)) end
    options[key] = given[i + 1]
  end
  if not name:find '^%l[%l%d_]*$' then return refuse(2, ("'%s' is no name of an op: small letters, digits, _\n%s"):format(name, usage)) end
  local rows = read 'src/amp_ops.def'
  if not rows then return refuse(1, 'amp new op works in the source tree of amp: src/amp_ops.def is not here') end
  if rows:find('AMP_OP%(%u, ' .. name .. ',') then return refuse(1, ('there is an op %s; nothing was written'):format(name)) end
  if options.policy and not classes[options.policy] then
    return refuse(2, ('no class %s; there are: %s'):format(options.policy, table.concat(classes, ' ')))
  end
  if (options.doc or ''):find '["\\\n]' then return refuse(2, '--doc takes one sentence without double quotes and backslashes') end
  local all, why = pieces(name, options)
  if not all then return refuse(2, why) end
  for _, p in ipairs(all) do -- all are made before the first is written
    local text = read(p[1])
    p.text = text and put(text, p[2], p[3])
    if not p.text then return refuse(1, ('%s has no line that begins with %s; nothing was written'):format(p[1], tostring(p[2]))) end
  end
  for _, p in ipairs(all) do
    local ok, failed = write(p[1], p.text)
    if not ok then return refuse(1, ('%s can not be written: %s'):format(p[1], tostring(failed))) end
    print(('%s\n  %s'):format(p[1], (p[3]:gsub('\n', '\n  '))))
  end
  for _, p in ipairs(all) do -- the rows of the table may be as long as they are
    for line in p[3]:gmatch '[^\n]+' do
      if #line > 120 and p[1]:find '%.[ch]$' then print(('\n%s: a line has more than 120 columns; break it'):format(p[1])) end
    end
  end
  print(('\nBuild it and run its cases:\n  cmake --build build && luajit spec/run.lua --filter=%s spec/ops/ops_spec.lua'):format(name))
  return 0
end
