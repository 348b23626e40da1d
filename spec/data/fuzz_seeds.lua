--- Good files of every format that amp reads, to be damaged by spec/data/fuzz_readers.lua: seeds(path, most) gives a list of
-- {name, read = function(path), files = list of texts, fix = function that sets check sums right, share, plain}.
local ffi = require 'ffi'
local amp = require 'amp'
local file = require 'amp.io.file'
local C = require('amp.ffi').C
local le, unle = file.le, file.unle

pcall(ffi.cdef, 'int amp_z_compress(uint8_t *to, unsigned long *n, const uint8_t *from, unsigned long size) __asm__("compress");')

local here = debug.getinfo(1, 'S').source:match '^@(.*)/[^/]*$' or 'spec'

local function be32(n) return le(n, 4):reverse() end
local function crc(s) return C.amp_crc32(0, s, #s) end
local function slurp(path)
  local f = assert(io.open(path, 'rb'))
  local s = f:read '*a'
  f:close()
  return s
end
local function at(s, i, n) return unle(ffi.cast('const uint8_t *', s) + i, n) end
local function set(s, i, piece) return s:sub(1, i) .. piece .. s:sub(i + #piece + 1) end

-- What a function wrote to the path.
local function written(path, fn)
  fn()
  local s = slurp(path)
  os.remove(path)
  return s
end

-- -- Tensors with every kind of NaN -----------------------------------------------------------------

local function of(bytes, dtype, ...)
  local n, size = 1, { ... }
  for _, s in ipairs(size) do n = n * s end
  local p = ffi.new('uint8_t[?]', #bytes + 1)
  ffi.copy(p, bytes, #bytes)
  return amp.from_ptr(ffi.cast('void *', p), size, dtype):clone(), p
end

local function tensors()
  local all = {
    f64 = of('\1\1\1\1\1\0\253\255\16\0\0\0\0\128\251\255\255\255\255\255\255\255\255\255\0\0\0\0\0\0\240\63', 'float64', 4),
    f32 = of('\255\255\255\255\0\128\255\255\1\0\128\127\0\0\128\63', 'float32', 2, 2),
    f16 = of('\255\255\1\124\0\60', 'float16', 3), bf16 = of('\255\255\129\127', 'bfloat16', 2),
    i64 = amp.tensor({ 1, -2 }, { dtype = 'int64' }), b = amp.tensor({ true, false, true }, { dtype = 'bool' }), u8 = amp.zeros(300):to 'uint8',
    none = amp.zeros(0, 3), one = amp.tensor(2.5),
  }
  return all
end

-- -- Archives --------------------------------------------------------------------------------------

local function deflate(s)
  local zlib = require('amp.data.gzip').zlib()
  if not zlib then return nil end
  local room = #s + 1000
  local out, n = ffi.new('uint8_t[?]', room), ffi.new('unsigned long[1]', room)
  assert(zlib.amp_z_compress(out, n, s, #s) == 0)
  return ffi.string(out + 2, tonumber(n[0]) - 6)
end

local function zip(members, wide)
  local body, directory = {}, {}
  local where, length = 0, 0
  for _, m in ipairs(members) do
    local name, data, packed = m[1], m[2], m[3]
    local raw = packed or data
    local sums = le(20, 2) .. le(0, 2) .. le(packed and 8 or 0, 2) .. le(0, 4) .. le(crc(data), 4)
    local sizes = wide and le(2 ^ 32 - 1, 4) .. le(2 ^ 32 - 1, 4) or le(#raw, 4) .. le(#data, 4)
    local extra = wide and le(1, 2) .. le(16, 2) .. le(#data, 8) .. le(#raw, 8) or ''
    local first = 'PK\3\4' .. sums .. sizes .. le(#name, 2) .. le(#extra, 2) .. name .. extra .. raw
    local entry = 'PK\1\2' .. le(20, 2) .. sums .. sizes .. le(#name, 2) .. le(#extra, 2) .. ('\0'):rep(10) .. le(where, 4) .. name .. extra
    body[#body + 1], directory[#directory + 1] = first, entry
    where, length = where + #first, length + #entry
  end
  local big = ''
  if wide then
    big = 'PK\6\6' .. le(44, 8) .. le(45, 2) .. le(45, 2) .. le(0, 8) .. le(#members, 8) .. le(#members, 8) .. le(length, 8) .. le(where, 8)
      .. 'PK\6\7' .. le(0, 4) .. le(where + length, 8) .. le(1, 4)
  end
  local n = wide and 0xffff or #members
  return table.concat(body) .. table.concat(directory) .. big .. 'PK\5\6' .. le(0, 4) .. le(n, 2) .. le(n, 2)
    .. (wide and le(2 ^ 32 - 1, 4) .. le(2 ^ 32 - 1, 4) or le(length, 4) .. le(where, 4)) .. le(0, 2)
end

-- The check sums of stored members, where they can be found.
local function fix_zip(s)
  local from = 0
  while true do
    local k = s:find('PK\1\2', from + 1, true)
    if not k or k + 46 > #s then return s end
    local e, place = k - 1, at(s, k - 1 + 42, 4)
    if place + 30 <= #s and at(s, e + 10, 2) == 0 then
      local data = place + 30 + at(s, place + 26, 2) + at(s, place + 28, 2)
      s = set(s, e + 16, le(crc(s:sub(data + 1, data + at(s, e + 24, 4))), 4))
    end
    from = k + 4
  end
end

local function npz_files(path)
  local t = tensors()
  t.bf16 = nil
  local list = { written(path, function() amp.io.save_npz(path, t) end) }
  local function npy(x) return written(path, function() amp.io.save_npy(path, x) end) end
  local head = "{'descr': '<U3', 'fortran_order': False, 'shape': (), }\n"
  local text = '\147NUMPY\1\0' .. le(#head, 2) .. head .. ('\0'):rep(12)
  local a, b = npy(t.f32), npy(t.u8)
  list[#list + 1] = zip { { 'a.npy', a }, { 'format.npy', text }, { 'README.txt', 'hi' } }
  list[#list + 1] = zip({ { 'a.npy', a }, { 'b.npy', b } }, true)
  if deflate 'x' then list[#list + 1] = zip { { 'b.npy', b, deflate(b) }, { 'a.npy', a, deflate(a) }, { 'u.npy', text, deflate(text) } } end
  return list
end

local function npy_files(path)
  local t, list = tensors(), {}
  for _, name in ipairs { 'f64', 'f32', 'f16', 'i64', 'b', 'none', 'one' } do
    list[#list + 1] = written(path, function() amp.io.save_npy(path, t[name]) end)
  end
  list[#list + 1] = list[2]:gsub('<f4', '>f4')
  list[#list + 1] = list[2]:gsub('False', 'True ')
  list[#list + 1] = list[2]:gsub("'<f4'", '|O  ')
  list[#list + 1] = "\147NUMPY\1\0" .. le(70, 2) .. ("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }"):sub(1, 69) .. '    \0\0\0\0'
  return list
end

-- -- Others -------------------------------------------------------------------------------------------

local function fix_safetensors(s)
  local close = s:find('}}', 9, true)
  return close and set(s, 0, le(close + 1 - 8, 8)) or s
end

-- The byte (from 1) at which the JSON object that begins at byte `from` ends, nil where it does not.
local function object_end(s, from)
  local depth, inside = 0, false
  while true do
    from = s:find('["{}\\]', from)
    if not from then return nil end
    local c = s:sub(from, from)
    if c == '\\' then from = from + 1
    elseif c == '"' then inside = not inside
    elseif not inside then
      depth = depth + (c == '{' and 1 or -1)
      if depth == 0 then return from end
    end
    from = from + 1
  end
end

-- The length of a graph's header, and the check sum of its text.
local function fix_graph(s)
  local from, to = s:find('"amp%.graph":".-[^\\]","amp%.graph%.crc32":"%x+"')
  if from then
    local text, sum = s:sub(from, to):match '^"amp%.graph":(".*"),"amp%.graph%.crc32":"(%x+)"$'
    local plain = text and amp.io.json.decode(text)
    if plain then s = s:sub(1, to - 1 - #sum) .. ('%08x'):format(crc(plain)) .. s:sub(to) end
  end
  local last = object_end(s, 9)
  return last and set(s, 0, le(last - 8, 8)) or s
end

local function graph_files(path)
  local nn = amp.nn
  local function saved(fn, ...)
    local g = amp.trace(fn, ...)
    return written(path, function() g:save(path) end)
  end
  local x = amp.randn(2, 3)
  local table_of = amp.tensor({ 1, 2, 3 }, { dtype = 'int64' })
  return {
    saved(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2)), x),
    saved(nn.Sequential(nn.Conv2d(1, 2, 3, { padding = 1 }), nn.BatchNorm2d(2), nn.MaxPool2d(2)), amp.randn(1, 1, 4, 4)),
    saved(function(a, state) return { a:mul(2):add_(state.h), state.h:index_select(1, table_of:narrow(1, 1, 2)) }, (a:sum(2)) end, x, { h = x + 1, k = 'a' }),
    saved(function(a)
      local y = amp.autocast({ dtype = 'bfloat16' }, function() return a:matmul(a:t()) end)
      return amp.no_grad(function() return amp.zeros(2, 2):add(y:float()):clamp(-math.huge, 1e300):reshape(-1) end) / 3
    end, x),
    saved(function(a) return a:view(3, 2):sum({ 1 }, true):softmax(-1):max(2) end, x),
  }
end

-- Runs what was read, where its numbers are small.
local function run_graph(p)
  local g = amp.load_graph(p)
  for _, node in ipairs(g:nodes()) do
    for _, v in pairs(node.attrs) do
      for _, number in ipairs(type(v) == 'table' and v or { v }) do
        if type(number) == 'number' and math.abs(number) > 300 then return nil end
      end
    end
  end
  local C_ = require('amp.ffi').C
  local inputs, refs, n = {}, ffi.new 'amp_ref[16]', C_.amp_graph_inputs(g.handle)
  if n > 16 or C_.amp_graph_outputs(g.handle) > 16 then return nil end
  for i = 0, n - 1 do
    local v = C_.amp_graph_value_at(g.handle, C_.amp_graph_input(g.handle, i))
    local size, count = {}, 1
    for d = 1, v.ndim do
      size[d] = tonumber(v.size[d - 1])
      count = count * size[d]
    end
    if count > 10000 then return nil end
    inputs[i + 1] = amp.ones(size, { dtype = require('amp.types').dtype_name[v.dtype] })
    refs[i].ptr_ = inputs[i + 1].ptr_
  end
  local out = ffi.new 'amp_ref[16]'
  if C_.amp_graph_run(g.handle, refs, n, out, C_.amp_graph_outputs(g.handle)) < 0 then return nil end
  local results = {}
  for i = 0, C_.amp_graph_outputs(g.handle) - 1 do
    results[i + 1] = require('amp.ffi').ref_t()
    results[i + 1].ptr_ = out[i].ptr_
  end
  return results
end

local function fix_png(s)
  local i = 8
  while i + 12 <= #s do
    local n = at(s:sub(i + 1, i + 4):reverse(), 0, 4)
    if i + 12 + n > #s then return s end
    s = set(s, i + 8 + n, be32(crc(s:sub(i + 5, i + 8 + n))))
    i = i + 12 + n
  end
  return s
end

local function fix_checkpoint(s)
  if #s < 48 then return s end
  local foot = #s - 32
  local first, n = at(s, foot, 8), at(s, foot + 8, 8)
  if first + n > foot or first < 16 then return s end
  local segments = at(s, first, 4)
  for i = 0, math.min(segments, 20) - 1 do
    local e = first + 4 + 21 * i
    if e + 21 > first + n then break end
    local from, length = at(s, e + 1, 8), at(s, e + 9, 8)
    if from + length <= first then s = set(s, e + 17, le(crc(s:sub(from + 1, from + length)), 4)) end
  end
  s = set(s, foot + 16, le(crc(s:sub(first + 1, first + n)), 4))
  return set(s, foot + 20, le(crc(s:sub(foot + 1, foot + 20)), 4))
end

-- Compressed by gzip, in a stored block.
local function gz(s)
  if #s > 65535 or s:sub(1, 2) == '\31\139' then return s end
  return '\31\139\8\0\0\0\0\0\0\3\1' .. le(#s, 2) .. le(65535 - #s, 2) .. s .. le(crc(s), 4) .. le(#s, 4)
end

local function idx_files()
  local list = {
    '\0\0\8\3\0\0\0\2\0\0\0\2\0\0\0\3abcdefghijkl', '\0\0\13\1\0\0\0\3\255\255\255\255\255\255\128\0\63\128\0\0',
    '\0\0\14\2\0\0\0\1\0\0\0\2\255\253\0\1\1\1\1\1\63\240\0\0\0\0\0\0', '\0\0\12\1\0\0\0\0',
  }
  for i = 1, 2 do list[#list + 1] = gz(list[i]) end
  return list
end

local function int(v) return le(v % 2 ^ 32, 4) end
local function str(s) return int(#s) .. s end
local function number(bytes) return int(1) .. bytes end
local function object(i, class, body) return int(4) .. int(i) .. str 'V 1' .. str(class) .. body end

local function t7_files()
  local hostile = number '\16\0\0\0\0\0\250\255'
  local store = object(2, 'torch.FloatStorage', le(4, 8) .. '\255\255\255\255\0\128\255\255\1\0\128\127\0\0\128\63')
  local list = {
    hostile, int(3) .. int(1) .. int(2) .. number(('\0'):rep(6) .. '\240\63') .. hostile .. int(2) .. str 'key' .. int(5) .. int(1),
    object(1, 'torch.FloatTensor', int(2) .. le(2, 8) .. le(2, 8) .. le(2, 8) .. le(1, 8) .. le(1, 8) .. store),
    object(1, 'tds.Hash', le(1, 8) .. int(2) .. str 'k' .. hostile), object(1, 'tds.Vec', int(2) .. hostile .. int(2) .. str 'v'),
    object(1, 'nn.Linear', int(3) .. int(2) .. int(1) .. int(2) .. str 'weight' .. store),
    '3\n1\n1\n1\n1\n2\n3\nabc\n', '4\n1\n3\nV 1\n17\ntorch.FloatTensor\n1\n3\n1\n1\n4\n2\n3\nV 1\n18\ntorch.FloatStorage\n3\n1 nan -inf\n',
    int(8) .. int(1) .. int(3) .. 'abc' .. int(0),
  }
  local folders = require 'amp.data.folders'
  for _, e in ipairs(folders.list(here .. '/../fixtures/t7') or {}) do
    local s = e.name:find '%.t7$' and slurp(here .. '/../fixtures/t7/' .. e.name)
    if s and #s < 4000 then list[#list + 1] = s end
  end
  return list
end

local function image_files(ending)
  local list, folders = {}, require 'amp.data.folders'
  for _, e in ipairs(assert(folders.list(here .. '/../fixtures/images'))) do
    if e.name:find('%.' .. ending .. '$') then list[#list + 1] = slurp(here .. '/../fixtures/images/' .. e.name) end
  end
  return list
end

-- PNGs with a transparent colour
local function keyed_files()
  local out = {}
  for i, s in ipairs(image_files 'png') do
    local part = 'tRNS' .. (s:byte(26) == 2 and '\0\1\0\2\0\3' or '\0\1')
    out[i] = s:sub(1, 33) .. be32(#part - 4) .. part .. be32(crc(part)) .. s:sub(34)
  end
  return out
end

-- JPEGs with EXIF parts, which are read at half their size where libturbojpeg is there
local function turned_files()
  local out, exif = {}, 'Exif\0\0II\42\0\8\0\0\0\1\0\18\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0'
  for i, s in ipairs(image_files 'jpg') do out[i] = s:sub(1, 2) .. '\255\225' .. be32(#exif + 2):sub(3) .. exif .. s:sub(3) end
  return out
end

local function read_part(path, most)
  return require('amp.data.image').read_any('read_image', path, 3, most, function() return 2 end):contiguous()
end

-- Models of several kinds, and what stands in them in one piece.
local function onnx_files()
  local list = {}
  for _, name in ipairs { 'torch_mlp', 'torch_conv', 'torch_images', 'windows', 'shapes', 'recurrent' } do
    list[#list + 1] = slurp(here .. '/../fixtures/onnx/' .. name .. '.onnx')
  end
  return list
end

-- How many nodes the graph of a model has.
local function read_onnx(path, o)
  local g = amp.io.onnx.load(path, o)
  return #g:nodes()
end

-- Files of torch.save, of both formats.
local function pt_files(path)
  local list = {}
  for _, name in ipairs { 'zip', 'old', 'state', 'date' } do list[#list + 1] = slurp(here .. '/../fixtures/pt/' .. name .. '.pt') end
  list[#list + 1] = written(path, function() amp.io.save_pt(path, { a = amp.ones(2, 3), n = { 1, 'x', { b = -0.5, [3] = true } } }) end)
  return list
end

local TEXT = "Don't  go\t\r\n\195\169e\204\129 \228\184\128\227\129\130 1234 <s>a</s> x y" .. ('z'):rep(300) .. (' '):rep(200) .. ('ab'):rep(100)

local function tokenizer_files()
  local list = {}
  for _, name in ipairs { 'gpt2', 'llama3', 'unigram', 'bert', 'suffix', 'prefix', 'llama2' } do
    list[#list + 1] = slurp(here .. '/../fixtures/text/tokenizers/' .. name .. '.json')
  end
  return list
end

-- Reads a tokenizer, and lets it encode and decode a text; these errors need not name the file.
local function read_tokenizer(path)
  local tok = amp.text.Tokenizer.from_file(path)
  local ok, ids = pcall(tok.encode, tok, TEXT)
  if not ok then
    if not require('amp.error').is(ids) then error(ids, 0) end
    return nil
  end
  local fine, e = pcall(tok.decode, tok, ids)
  if not fine and not require('amp.error').is(e) then error(e, 0) end
  pcall(tok.encode_batch, tok, { TEXT, 'a' })
  return #ids
end

local JSON = { '{"a":[1,2.5e3,-0.0,null,true,false,"x\\u00e9\\n"],"b":{"c":{"d":[[],{}]}}}', '[[[[[[1]]]]]]', '"\\ud83d\\ude00"', '  12  ' }
local CSV = { 'step,time,loss\n1,1.5,0.5\n2,2.5,nan\n3,3.5,\n', 'step,time,"a,b","c""d"\n1,2,3,4\n2,3,inf,-inf\n', 'step,time\n' }

--- The readers.
-- @tparam string path where files may be written
-- @tparam number most max_bytes of the reads
return function(path, most)
  local o = { max_bytes = most }
  local nested = { a = { 1, 'x', true, { b = -0.5 } }, [1] = 'one', [false] = 2 }
  local t = tensors()
  local checkpoint = { n = nested, again = nested, t = t, view = t.u8:reshape(30, 10)[{ {}, { 2, 5 } }] }
  return {
    { name = 'checkpoint', fix = fix_checkpoint, read = function(p) return amp.load(p, o) end,
      files = { written(path, function() amp.save(path, checkpoint) end), written(path, function() amp.save(path, { 1, { 'two' } }) end) } },
    { name = 'safetensors', fix = fix_safetensors, read = function(p) return amp.io.safetensors.load(p, o) end,
      files = { written(path, function() amp.io.safetensors.save(path, tensors(), { k = 'v' }) end),
        le(79, 8) .. '{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"__metadata__":{}}   ab' } },
    { name = 'graph', fix = fix_graph, read = run_graph, files = graph_files(path) },
    { name = 'npy', read = function(p) return amp.io.load_npy(p, o) end, files = npy_files(path) },
    { name = 'npz', fix = fix_zip, read = function(p) return amp.io.load_npz(p, o) end, files = npz_files(path) },
    { name = 'pt', fix = fix_zip, read = function(p) return amp.io.load_pt(p, o) end, files = pt_files(path) },
    { name = 'tokenizer', share = 0.5, read = read_tokenizer, files = tokenizer_files() },
    { name = 't7', read = function(p) return amp.torch7.load(p, o) end, files = t7_files() },
    { name = 't7_short', read = function(p) return amp.torch7.load(p, { long_size = 4, max_bytes = most }) end, files = t7_files() },
    { name = 'onnx', share = 0.5, read = function(p) return read_onnx(p, o) end, files = onnx_files() },
    { name = 'idx', fix = gz, read = function(p) return amp.data.idx(p, o) end, files = idx_files() },
    { name = 'png', fix = fix_png, read = function(p) return amp.data.read_image(p, o) end, files = image_files 'png' },
    { name = 'png_keyed', share = 0.3, fix = fix_png, read = function(p) return amp.data.read_image(p, { channels = 4, max_bytes = most }) end,
      files = keyed_files() },
    { name = 'jpeg', share = 0.5, read = function(p) return amp.data.read_image(p, o) end, files = image_files 'jpg' },
    { name = 'jpeg_turned', share = 0.2, read = function(p) return read_part(p, most) end, files = turned_files() },
    { name = 'webp', read = function(p) return amp.data.read_image(p, o) end, files = image_files 'webp' },
    { name = 'pnm', read = function(p) return amp.data.read_image(p, o) end, files = image_files 'p[pgb]m' },
    { name = 'json', read = function(p)
      local v, why = amp.io.json.decode(slurp(p))
      if v == nil then error(why, 0) end
      return v
    end, plain = true, files = JSON },
    { name = 'csv', read = function(p) return amp.Logger.read(p) end, files = CSV },
    { name = 'text', share = 0.2, read = function(p) return amp.data.TextDataset(p, { level = 'char', length = 2 }).tokens end,
      files = { 'a b c\195\169\n', ('xyz'):rep(20), '\255\254\0' } },
    { name = 'any', read = function(p) -- each reader on each other's files
      local all = { amp.load, amp.io.load_pt, amp.io.safetensors.load, amp.io.load_npy, amp.io.load_npz, amp.torch7.load, amp.data.idx, amp.data.read_image }
      local v, good
      for _, read in ipairs(all) do
        local ok, e = pcall(read, p, o)
        if ok then v, good = e, true
        elseif not require('amp.error').is(e) or not tostring(e):find(p, 1, true) then error(e, 0) end
      end
      return good and v or nil
    end, share = 0.3, files = { slurp(here .. '/../fixtures/images/gray.png'), t7_files()[3], idx_files()[5], JSON[1], npy_files(path)[2],
      'PK\3\4' .. ('\0'):rep(22) .. le(12, 2) .. le(0, 2) .. 'net/data.pkl', '\128\2\138\10l\252\156F\249 j\168P\25.', 'GGUF\3\0\0\0', '\137HDF\r\n\26\n\0\0',
      'plain text\n', ('\0'):rep(600), 'version https://git-lfs.github.com/spec/v1\n' } },
  }
end
