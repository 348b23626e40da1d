--- What a file is, told by its first bytes: so that a reader given another format's file can say which one, and what reads it.
local ffi = require 'ffi'

local M = {}


-- name: what it is; by: what reads it; formats: the readers (their names below) for which it is no stranger
local known = {
  checkpoint = { name = 'a checkpoint that amp.save wrote', by = 'amp.load reads it' },
  safetensors = { name = 'a safetensors file', by = 'amp.io.safetensors.load reads it' },
  npy = { name = "an array of NumPy (.npy)", by = 'amp.io.load_npy reads it' },
  npz = { name = 'an archive of NumPy arrays (.npz)', by = 'amp.io.load_npz reads it' },
  t7 = { name = 'a file of Torch7 (.t7)', by = 'amp.torch7.load reads it' },
  idx = { name = 'an idx file', by = 'amp.data.idx reads it' },
  gzip = { name = 'compressed with gzip', by = 'amp.data.idx reads idx files so; decompress others with gunzip' },
  image = { name = 'an image', by = 'amp.data.read_image reads it' },
  picture = { name = 'a GIF, WebP or TIFF image', by = 'write it anew as PNG; amp.data.read_image reads those' },
  torch = { name = "a file of PyTorch's torch.save", by = 'amp.io.load_pt reads it' },
  torch_old = { name = "a file of PyTorch's torch.save, in its older format, or a pickle", by = 'amp.io.load_pt reads it' },
  pickle = { name = 'a pickle of Python', by = 'reading it would run code; amp.io.load_pt reads what torch.save wrote' },
  zip = { name = 'a zip archive', by = 'unpack it first' },
  hdf5 = { name = 'an HDF5 file', by = "write its arrays in Python with numpy.savez and read that by amp.io.load_npz" },
  gguf = { name = 'a GGUF file', by = 'amp reads none of these; look for the same weights as safetensors' },
  onnx = { name = 'an ONNX model (or other protocol buffers)', by = 'amp.io.onnx.load reads it' },
  json = { name = 'JSON', by = 'amp.io.json.decode reads its text' },
  lua = { name = 'compiled Lua', by = 'no reader of data runs it' },
  tar = { name = 'a tar archive', by = 'unpack it first' },
  xz = { name = 'compressed with xz, bzip2 or zstd', by = 'decompress it first' },
  pdf = { name = 'a PDF', by = 'no reader of data' },
  elf = { name = 'a program or library', by = 'no reader of data' },
  html = { name = 'a web page', by = 'the download gave a page in place of the file' },
  lfs = { name = 'a pointer of Git LFS', by = 'the file itself was not fetched: git lfs pull' },
  empty = { name = 'empty', by = 'nothing was written to it, or it was cut off' },
  zeros = { name = 'nothing but zeros', by = 'its writing never ended' },
  text = { name = 'text', by = nil },
}

-- Of archives, by the first member's name.
local function archive(head)
  local n = head:byte(27) + 256 * head:byte(28)
  local name = head:sub(31, 30 + n)
  if name:find '%.npy$' then return 'npz' end
  for _, ending in ipairs { '%.pkl$', '/version$', '/byteorder$', '/%.format_version$', '/%.storage_alignment$', '/%.data/' } do
    if name:find(ending) then return 'torch' end
  end
  return 'zip'
end

local function number(head, at, n)
  local v = 0
  for i = at + n - 1, at, -1 do v = v * 256 + head:byte(i) end
  return v
end

local magics = {
  { '\137AMP\r\n\26\n', 'checkpoint' }, { '\147NUMPY', 'npy' }, { '\31\139', 'gzip' }, { '\137PNG\r\n\26\n', 'image' }, { '\255\216\255', 'image' },
  { '\137HDF\r\n\26\n', 'hdf5' }, { 'GGUF', 'gguf' }, { '\27LJ', 'lua' }, { '\27Lua', 'lua' }, { '\253' .. '7zXZ\0', 'xz' }, { 'BZh', 'xz' },
  { '\40\181\47\253', 'xz' }, { '%PDF', 'pdf' }, { '\127ELF', 'elf' }, { 'II*\0', 'picture' }, { 'MM\0*', 'picture' }, { '<!DOCTYPE', 'html' },
  { '<!doctype', 'html' }, { '<html', 'html' },
  { 'version https://git-lfs', 'lfs' },
}

--- The kind of a file with these first bytes (some 512) and this size: a key of M.known, nil where nothing tells.
function M.of(head, size)
  if size == 0 then return 'empty' end
  for _, m in ipairs(magics) do
    if head:sub(1, #m[1]) == m[1] then return m[2] end
  end
  if #head >= 30 and head:sub(1, 4) == 'PK\3\4' then return archive(head) end
  if head:sub(1, 4) == 'PK\5\6' then return 'zip' end
  if head:match '^P[1-6][%s#]' then return 'image' end
  if head:sub(1, 4) == 'RIFF' and head:sub(9, 12) == 'WEBP' or head:sub(1, 3) == 'GIF' then return 'picture' end
  if #head >= 9 and head:byte(9) == 123 and number(head, 1, 8) + 8 <= size then return 'safetensors' end
  if #head >= 262 and head:sub(258, 262) == 'ustar' then return 'tar' end
  local pickled = head:match '^\128[\2-\5]'
  if pickled then return head:sub(3, 4) == '\138\10' and 'torch_old' or 'pickle' end -- the older format begins with a long of ten bytes
  if #head >= 4 and head:byte(1) <= 8 and head:sub(2, 4) == '\0\0\0' then return 't7' end
  if #head >= 4 and head:sub(1, 2) == '\0\0' and head:byte(3) >= 8 and head:byte(3) <= 14 and head:byte(4) >= 1 and head:byte(4) <= 8 then return 'idx' end
  if head:match '^[0-8]\r?\n%d' then return 't7' end
  if head:match '^[%z]+$' then return 'zeros' end
  if head:match '^\8[\1-\15][\18\26\34:]' then return 'onnx' end
  if head:match '^%s*[{%[]' then return 'json' end
  if not head:find '[%z\1-\8\14-\31\127]' then return 'text' end
end

M.known = known

--- What a file is, as the end of an error of a reader that could not make anything of it: '' where that is not known.
-- @param f a file of amp.io.file, or memory.bytes
-- @tparam string own the reader's own kind, of which nothing is said
function M.hint(f, own)
  local n = math.min(f.size, 512)
  local buffer = ffi.new('uint8_t[?]', math.max(n, 1))
  if not f:read(buffer, n, 0) then return '' end
  local found = M.of(ffi.string(buffer, n), f.size)
  local k = found and found ~= own and known[found]
  if not k then return '' end
  return ('. It is %s%s'):format(k.name, k.by and ': ' .. k.by or '')
end

return M
