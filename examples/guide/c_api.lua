-- Writes the manual's page of the C API from the comments of src/amp.h:
--   lua/bin/amp examples/guide/c_api.lua > examples/guide/c_api.md
-- The header's sections become the page's; a type is shown as it stands there, a function
-- with the comment above it. A function without one is an error.
local folder = arg[0]:match '^(.*/)' or './'
local file = assert(io.open(folder .. '../../src/amp.h', 'r'))
local lines = {}
for line in file:lines() do lines[#lines + 1] = line end
file:close()

-- Text of a comment: its lines without stars; an empty one ends a paragraph.
local function text_of(comment)
  local list = {}
  for line in (comment:gsub('^/%*', ''):gsub('%*/$', '') .. '\n'):gmatch '(.-)\n' do
    list[#list + 1] = line:gsub('^%s*%*%*%s?', ''):match '^%s*(.-)%s*$'
  end
  return (table.concat(list, '\n'):gsub('^\n+', ''):gsub('\n+$', ''))
end

-- In Markdown: names as code, signs that mean something escaped.
local function markdown(text)
  local out = text:gsub('([%w_]*)(%b())', function(name, arguments) -- calls stay whole
    if name ~= '' and (name:find '^amp_' or name == 'op') then return '\1' .. name .. arguments .. '\2' end
  end)
  out = out:gsub('%f[%w_]([Aa][Mm][Pp]_[%w_]+)', '\1%1\2'):gsub('%f[%w_](S%->[%w_]+)', '\1%1\2'):gsub('%f[%w_](e%->[%w_]+)', '\1%1\2')
  local depth, parts = 0, {}
  for piece in (out .. '\3'):gmatch '[^\1\2\3]*[\1\2\3]' do
    local body, mark = piece:sub(1, -2), piece:sub(-1)
    if depth == 0 then body = body:gsub('`', '\4'):gsub('%*', '\\*'):gsub('<', '&lt;'):gsub('\4', '`') end
    parts[#parts + 1] = body
    if mark == '\1' then
      if depth == 0 then parts[#parts + 1] = '`' end
      depth = depth + 1
    elseif mark == '\2' then
      depth = depth - 1
      if depth == 0 then parts[#parts + 1] = '`' end
    end
  end
  return table.concat(parts)
end

local out, functions = {}, 0
local function say(...) out[#out + 1] = table.concat { ... } end

-- Only the text between the first section's banner and the end of the declarations
local i, last = 1, #lines
while not lines[i]:find '^/%* %-%- ' do i = i + 1 end
while not lines[last]:find '^enum amp_op_id' do last = last - 1 end
last = last - 2 -- the #ifndef around it

local comment -- the one read last, if nothing followed it so far
local function flush()
  if comment then say(markdown(text_of(comment)), '\n') end
  comment = nil
end
while i <= last do
  local line = lines[i]
  local banner = line:match '^/%* %-%- (.-) %-+ %*/$'
  if banner then
    flush()
    say('## ', banner, '\n')
  elseif line:find '^/%*' then
    flush()
    local block = { line }
    while not lines[i]:find('*/', 1, true) do
      i = i + 1
      block[#block + 1] = lines[i]
    end
    comment = table.concat(block, '\n')
    if lines[i + 1] == '' then flush() end
  elseif line:find '^AMP_API' then
    local block = { (line:gsub('^AMP_API ', '')) }
    while not lines[i]:find(';', 1, true) do
      i = i + 1
      block[#block + 1] = lines[i]:gsub('^        ', '') -- as far left as the first line went
    end
    local name = table.concat(block, ' '):match '(amp_[%w_]+)%s*%('
    local declaration, trailing = block[#block]:match '^(.-;)%s*(/%*.*%*/)%s*$'
    if trailing then
      block[#block] = declaration
      comment = comment or trailing
    end
    if not comment then error('amp.h has no comment above ' .. name, 0) end
    functions = functions + 1
    say('### ', name, '\n')
    say('```c\n', table.concat(block, '\n'), '\n```\n')
    flush()
  elseif line == '#ifndef AMP_CDEF' then -- C's own form of what Lua sees under another name
    local block = {}
    i = i + 1
    while not lines[i]:find '^#else' do
      block[#block + 1] = lines[i]
      i = i + 1
    end
    while not lines[i]:find '^#endif' do i = i + 1 end
    say('```c\n', comment and comment .. '\n' or '', table.concat(block, '\n'), '\n```\n')
    comment = nil
  elseif line ~= '' then -- a type, as it stands
    local block = { line }
    local _, open = line:gsub('{', '')
    local _, close = line:gsub('}', '')
    while open > close or not lines[i]:find ';' do
      i = i + 1
      block[#block + 1] = lines[i]
      local _, o = lines[i]:gsub('{', '')
      local _, c = lines[i]:gsub('}', '')
      open, close = open + o, close + c
    end
    say('```c\n', comment and comment .. '\n' or '', table.concat(block, '\n'), '\n```\n')
    comment = nil
  end
  i = i + 1
end
flush()

local names = {}
for _, part in ipairs(out) do
  local name = part:match '^### (amp_[%w_]+)'
  if name then names[#names + 1] = ('[%s](#%s)'):format(name, name) end
end
table.sort(names)

io.write(([[
# The C API

All of `amp.h`: %d functions; made by `examples/guide/c_api.lua` from the header's comments. How to compile and link, and
programs to start from, are on [Embedding](embedding.md). Everything that can be done to tensors is an op, called by its
number `AMP_OP_name`; [Every op](ops.md) says what each does, and how attributes travel stands under [Attributes](#attributes).

The numbers of ops, flags and structs are those of one version: a program is compiled against the header of the library it
runs with. It can see at its start whether that is so:

```c
if (strcmp(amp_version(), AMP_VERSION) != 0 || amp_abi_version() != AMP_ABI) return 1;
```

]]):format(functions))
io.write(table.concat(out, '\n'), '\n')
io.write [[
## Attributes

An op's schema (`amp_op_get(op)->schema`) lists its arguments in order. A bare word is a tensor, `x?` one that may be absent
(pass `NULL`), `x*` a list. `name:type` is an attribute; in the array of slots it takes the next places:

| type | slots | value |
| --- | --- | --- |
| `i` `b` `d` `t` `v` | 1 | `.i`: integer; 0 or 1; dimension from 1, from the end if negative; enum amp_dtype; device \* 256 + index from 0 |
| `f` | 1 | `.f`: a number |
| `eA,B,...` | 1 | `.i`: the place of the word, from 0 |
| `iN` | N | `.i`: N integers |
| `I` `D` | 9 | `.i`: a count, then up to 8 integers or dimensions; a count of `AMP_NONE` is an absent list |
| `F` | 9 | `.i` a count, then up to 8 numbers in `.f` |
| `IN` | N + 1 | as `I`, up to N values |

`=v` is the default, `?` allows `AMP_NONE`. Passing `NULL` for the array gives every attribute its default. So the sum over
the second dimension, kept, where the schema is `input dim:D? keepdim:b=0 dtype:t?`:

```c
amp_slot attrs[11] = { { .i = 1 }, { .i = 2 } }; /* dim: one value, 2; its other seven places are not read */
attrs[9].i = 1;                                  /* keepdim */
attrs[10].i = AMP_NONE;                          /* dtype: the input's */
if (amp_opx(S, AMP_OP_sum, &out, NULL, NULL, &x, NULL, NULL, NULL, NULL, attrs) < 0) puts(S->err.message);
```

## Every function

]]
io.write(table.concat(names, ' · '), '\n')
