-- The rooms of the core: whose objects need whose symbols. Rooms call each other in no circle, and inside
-- a room at most three files may know one another. Computed from the objects of the build.
local H = require 'spec.lib.helper'

local function lines(command)
  local pipe = assert(io.popen(command))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

-- 'ops/norm/softmax.c' is in room ops/norm, 'tensor/alloc.c' in tensor
local function room_of(file) return file:match '^(ops/[^/]+)/' or file:match '^([^/]+)/' end

-- file -> file -> list of symbols; and functions that no other file's object needs -> their file
local function calls()
  local folder = H.build .. '/CMakeFiles/amp_core.dir/src/'
  local owner, wanted, files, unused = {}, {}, {}, {}
  for _, line in ipairs(lines(("find '%s' -name '*.o' -exec nm -A {} +"):format(folder))) do
    local object, kind, symbol = line:match '^(.-):.-%s(%a) (%S+)$'
    local file = object and object:sub(#folder + 1):gsub('%.o$', '')
    if file and wanted[file] == nil then -- objects of files that are gone may lie there still
      local source = io.open(H.root .. '/src/' .. file)
      wanted[file] = source and {} or false
      if source then
        source:close()
        files[#files + 1] = file
      end
    end
    if file and wanted[file] then
      if kind == 'U' then wanted[file][symbol] = true
      elseif kind:match '[TDBRVWC]' then
        owner[symbol] = file
        if kind == 'T' and not symbol:find '%.' then unused[symbol] = file end
      end
    end
  end
  assert(#files > 100, 'no objects in ' .. folder)
  local graph = {}
  for _, file in ipairs(files) do
    graph[file] = {}
    for symbol in pairs(wanted[file]) do
      local other = owner[symbol]
      unused[symbol] = nil
      if other and other ~= file then
        graph[file][other] = graph[file][other] or {}
        table.insert(graph[file][other], symbol)
      end
    end
  end
  return graph, unused
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read '*a'
  file:close()
  return text
end

-- Groups of nodes that reach each other (Tarjan 1972), those of one node left out.
local function circles(graph)
  local index, low, on, stack, count, found = {}, {}, {}, {}, 0, {}
  local function visit(v)
    count = count + 1
    index[v], low[v] = count, count
    stack[#stack + 1] = v
    on[v] = true
    for w in pairs(graph[v]) do
      if not index[w] then
        visit(w)
        low[v] = math.min(low[v], low[w])
      elseif on[w] then low[v] = math.min(low[v], index[w]) end
    end
    if low[v] ~= index[v] then return end
    local group = {}
    repeat
      local w = table.remove(stack)
      on[w] = nil
      group[#group + 1] = w
    until w == v
    if #group > 1 then
      table.sort(group)
      found[#found + 1] = group
    end
  end
  for v in pairs(graph) do if not index[v] then visit(v) end end
  return found
end

describe('rooms of the core', function()
  local graph, unused = calls()

  it('call each other in no circle', function()
    local rooms, example = {}, {}
    for file, others in pairs(graph) do
      local from = room_of(file)
      rooms[from] = rooms[from] or {}
      for other, symbols in pairs(others) do
        local to = room_of(other)
        if to ~= from then
          rooms[from][to] = true
          rooms[to] = rooms[to] or {}
          example[from .. ' -> ' .. to] = ('%s needs %s of %s'):format(file, symbols[1], other)
        end
      end
    end
    local said = {}
    for _, group in ipairs(circles(rooms)) do
      for _, a in ipairs(group) do
        for _, b in ipairs(group) do said[#said + 1] = example[a .. ' -> ' .. b] end
      end
    end
    assert(#said == 0, 'a circle of rooms:\n' .. table.concat(said, '\n'))
  end)

  it('have at most three files that know one another', function()
    for _, group in ipairs(circles(graph)) do assert(#group <= 3, 'too many: ' .. table.concat(group, ', ')) end
  end)

  -- A function that registers something, and that nothing calls any more, fails no other spec.
  it('have no function that nothing calls', function()
    local public, said = read(H.root .. '/src/amp.h'), {}
    for symbol, file in pairs(unused) do
      local word = '%f[%w_]' .. symbol .. '%f[^%w_]'
      if not public:find(word) and select(2, read(H.root .. '/src/' .. file):gsub(word, '')) < 2 then
        said[#said + 1] = ('%s of %s'):format(symbol, file)
      end
    end
    assert(#said == 0, 'nothing calls ' .. table.concat(said, ', '))
  end)

  it('have a ground that includes nothing above it', function()
    for _, line in ipairs(lines(("grep -n '#include \"' '%s'/src/base/*"):format(H.root))) do
      local name = line:match '#include "([^"]+)"'
      assert(name:match '^base/' or name == 'amp.h' or name == 'amp_ops.def' or name:match '^op_args', line)
    end
  end)
end)
