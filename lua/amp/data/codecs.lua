--- The system's image libraries, opened when first needed: libturbojpeg, libpng, libwebp.
--
-- None of them calls back or jumps over Lua's frames: TurboJPEG's and WebP's interfaces give codes, and so does libpng's simplified one.
local ffi = require 'ffi'
local amp = require 'amp'

ffi.cdef [[
struct amp_png { void *opaque; uint32_t version, width, height, format, flags, entries, warning_or_error; char message[64]; };
int amp_png_begin(struct amp_png *image, const void *from, size_t size) __asm__("png_image_begin_read_from_memory");
int amp_png_finish(struct amp_png *image, const void *background, void *to, int32_t stride, void *colours) __asm__("png_image_finish_read");
void amp_png_free(struct amp_png *image) __asm__("png_image_free");
void *amp_tj_init_decompress(void) __asm__("tjInitDecompress");
void *amp_tj_init_compress(void) __asm__("tjInitCompress");
int amp_tj_destroy(void *handle) __asm__("tjDestroy");
int amp_tj_header(void *handle, const uint8_t *from, unsigned long size, int *width, int *height, int *subsampling, int *colours)
  __asm__("tjDecompressHeader3");
int amp_tj_decompress(void *handle, const uint8_t *from, unsigned long size, uint8_t *to, int width, int pitch, int height, int format, int flags)
  __asm__("tjDecompress2");
int amp_tj_compress(void *handle, const uint8_t *from, int width, int pitch, int height, int format, uint8_t **to, unsigned long *size,
  int subsampling, int quality, int flags) __asm__("tjCompress2");
void amp_tj_free(void *p) __asm__("tjFree");
const char *amp_tj_error(void *handle) __asm__("tjGetErrorStr2");
int amp_webp_info(const uint8_t *from, size_t size, int *width, int *height) __asm__("WebPGetInfo");
uint8_t *amp_webp_decode(const uint8_t *from, size_t size, uint8_t *to, size_t room, int stride) __asm__("WebPDecodeRGBAInto");
]]

local M = {}

local names = {
  turbojpeg = { 'libturbojpeg.so.0', 'turbojpeg', 'libturbojpeg.0.dylib' },
  png = { 'libpng16.so.16', 'png16', 'libpng16.16.dylib' },
  webp = { 'libwebp.so.7', 'webp', 'libwebp.7.dylib' },
}
local opened = {}

--- A library, or nil.
function M.library(name)
  if opened[name] == nil then
    opened[name] = false
    for _, file in ipairs(names[name]) do
      local ok, library = pcall(ffi.load, file)
      if ok then
        opened[name] = library
        break
      end
    end
  end
  return opened[name] or nil
end

local GRAY, RGB, S444, S420, SGRAY = 6, 0, 0, 2, 3
local WARNING_IS_ERROR = 8192 -- TJFLAG_STOPONWARNING

-- A reader of a JPEG's bytes, with width, height and channels; nothing where the library is missing or the own decoder must do.
local function open_jpeg(bytes)
  local tj = M.library 'turbojpeg'
  if not tj then return nil end
  local handle = ffi.gc(tj.amp_tj_init_decompress(), tj.amp_tj_destroy)
  local n = ffi.new 'int[4]'
  if tj.amp_tj_header(handle, bytes, #bytes, n, n + 1, n + 2, n + 3) ~= 0 or n[3] > 2 then return nil end
  return handle, n[0], n[1], n[3] == 2 and 1 or 3
end

--- Width and height of a JPEG as it is stored; nothing where open_jpeg gives nothing.
function M.jpeg_size(bytes)
  local handle, w, h = open_jpeg(bytes)
  if handle then return w, h end
end

--- Decode a JPEG: pixels, width, height, channels, and a tensor H x W x channels that holds them; nil and the reason; nothing where
-- open_jpeg gives nothing.
-- @tparam string bytes
-- @tparam table budget a limit
-- @tparam ?number parts sides are divided by it, 1, 2, 4 or 8: pixels are then means of as many, and most of the work falls away
function M.decode_jpeg(bytes, budget, parts)
  local handle, w, h, channels = open_jpeg(bytes)
  if not handle then return nil end
  local tj = M.library 'turbojpeg'
  w, h = math.ceil(w / (parts or 1)), math.ceil(h / (parts or 1))
  local fits, why = budget:take(w * h * channels)
  if not fits then return nil, ('its size is %d x %d: %s'):format(w, h, why) end
  local pixels = amp.empty({ h, w, channels }, { dtype = 'uint8', device = 'cpu' })
  local out = ffi.cast('uint8_t *', pixels:data_ptr())
  if tj.amp_tj_decompress(handle, bytes, #bytes, out, w, 0, h, channels == 1 and GRAY or RGB, WARNING_IS_ERROR) ~= 0 then
    return nil, 'it is damaged or cut off (' .. ffi.string(tj.amp_tj_error(handle)) .. ')'
  end
  return out, w, h, channels, pixels
end

--- Encode interleaved pixels of a tensor.
function M.encode_jpeg(pixels, w, h, channels, quality)
  local tj = M.library 'turbojpeg'
  if not tj then return nil, 'libturbojpeg is not on this machine: install libturbojpeg0 (Debian), or write a .png' end
  local handle = ffi.gc(tj.amp_tj_init_compress(), tj.amp_tj_destroy)
  local to, size = ffi.new 'uint8_t *[1]', ffi.new 'unsigned long[1]'
  local code = tj.amp_tj_compress(handle, pixels:data_ptr(), w, 0, h, channels == 1 and GRAY or RGB, to, size,
    channels == 1 and SGRAY or quality > 95 and S444 or S420, quality, 0)
  local bytes = code == 0 and ffi.string(to[0], size[0]) or nil
  if to[0] ~= nil then tj.amp_tj_free(to[0]) end
  if not bytes then return nil, ffi.string(tj.amp_tj_error(handle)) end
  return bytes
end

local PNG_GRAY, PNG_GRAY_ALPHA, PNG_RGB, PNG_RGBA = 0, 1, 2, 3
local stops = { gAMA = true, cHRM = true, iCCP = true, tRNS = true }

local PNG_END = '\0\0\0\0IEND\174B`\130'

-- Format and channels that libpng gives without changing a value; nil for pictures that it would change (16 bits, a transparent colour,
-- gamma), for palettes, whose bounds it does not check, and where the last part is not as it must be, which it does not look at.
local function png_format(bytes)
  if #bytes < 33 or bytes:sub(13, 16) ~= 'IHDR' then return nil end
  local depth, colour, at = bytes:byte(25), bytes:byte(26), 34
  if depth > 8 or depth < 8 and colour ~= 0 then return nil end
  while bytes:sub(at + 4, at + 7) ~= 'IEND' do
    local a, b, c, d = bytes:byte(at, at + 3)
    if not d or stops[bytes:sub(at + 4, at + 7)] then return nil end
    at = at + 12 + ((a * 256 + b) * 256 + c) * 256 + d
  end
  if bytes:sub(at, at + 11) ~= PNG_END then return nil end
  if colour == 0 then return PNG_GRAY, 1 end
  if colour == 4 then return PNG_GRAY_ALPHA, 2 end
  if colour == 2 then return PNG_RGB, 3 end
  if colour == 6 then return PNG_RGBA, 4 end
end

--- Decode a PNG: pixels, width, height, channels; nothing where the library is missing, warns, fails, or would change values: the own
-- decoder must do, and says what is wrong.
function M.decode_png(bytes, budget)
  local png = M.library 'png'
  local format, channels
  if png then format, channels = png_format(bytes) end
  if not format then return nil end
  local image = ffi.new 'struct amp_png'
  image.version = 1
  if png.amp_png_begin(image, bytes, #bytes) == 0 then return nil end
  ffi.gc(image, png.amp_png_free) -- ffi.new may fail for want of memory
  local w, h, out = image.width, image.height, nil
  image.format = format
  if image.warning_or_error == 0 and w < 2 ^ 29 and budget:take(w * h * channels) then
    out = ffi.new('uint8_t[?]', w * h * channels)
    if png.amp_png_finish(image, nil, out, 0, nil) == 0 or image.warning_or_error ~= 0 then out = nil end
  end
  png.amp_png_free(ffi.gc(image, nil))
  if not out then return nil end
  return out, w, h, channels
end

--- Whether bytes begin as a WebP does.
function M.is_webp(bytes) return bytes:sub(1, 4) == 'RIFF' and bytes:sub(9, 12) == 'WEBP' end

-- A part of a RIFF file by its name, from place `at` on
local function riff_part(bytes, name, at)
  while true do
    local a, b, c, d = bytes:byte(at + 4, at + 7)
    if not d then return nil end
    local size = a + 256 * (b + 256 * (c + 256 * d))
    if bytes:sub(at, at + 3) == name then return bytes:sub(at + 8, at + 7 + size) end
    at = at + 8 + size + size % 2
  end
end

local function le24(s, at)
  local a, b, c = s:byte(at, at + 2)
  return c and a + 256 * (b + 256 * c) or 0
end

-- Of an animation: the first frame as a WebP of its own, where it lies, and the whole's width and height
local function first_frame(bytes)
  local frame, head = riff_part(bytes, 'ANMF', 13), riff_part(bytes, 'VP8X', 13)
  if not frame or not head then return nil end
  local data, form = frame:sub(17), ''
  if data:sub(1, 4) == 'ALPH' then form = 'VP8X\10\0\0\0\16\0\0\0' .. frame:sub(7, 12) end
  local size = 4 + #form + #data
  local four = string.char(size % 256, math.floor(size / 256) % 256, math.floor(size / 65536) % 256, math.floor(size / 2 ^ 24) % 256)
  return 'RIFF' .. four .. 'WEBP' .. form .. data, 2 * le24(frame, 1), 2 * le24(frame, 4), le24(head, 5) + 1, le24(head, 8) + 1
end

-- RGBA pixels of w x h on a clear picture of W x H
local function placed(p, w, h, x, y, W, H)
  local out = ffi.new('uint8_t[?]', W * H * 4)
  for row = 0, math.min(h, H - y) - 1 do
    ffi.copy(out + ((y + row) * W + x) * 4, p + row * w * 4, math.max(0, math.min(w, W - x)) * 4)
  end
  return out
end

--- Decode a WebP; of an animation the first frame.
function M.decode_webp(bytes, budget)
  local webp = M.library 'webp'
  if not webp then return nil, 'it is a WebP, and libwebp is not on this machine: install libwebp7 (Debian)' end
  local n = ffi.new 'int[2]'
  local still, x, y, W, H = first_frame(bytes)
  bytes = still or bytes
  if webp.amp_webp_info(bytes, #bytes, n, n + 1) == 0 then return nil, 'it is damaged or cut off' end
  local w, h = n[0], n[1]
  local part = still and (w ~= W or h ~= H or x > 0 or y > 0)
  local fits, why = budget:take((w * h + (part and W * H or 0)) * 4)
  if not fits then return nil, ('its size is %d x %d: %s'):format(W or w, H or h, why) end
  local out = ffi.new('uint8_t[?]', w * h * 4)
  if webp.amp_webp_decode(bytes, #bytes, out, w * h * 4, w * 4) == nil then return nil, 'it is damaged or cut off' end
  if part then
    if x >= W or y >= H then return nil, 'it is damaged: its first frame lies outside it' end
    out, w, h = placed(out, w, h, x, y, W, H), W, H
  end
  for i = 3, w * h * 4 - 1, 4 do
    if out[i] ~= 255 then return out, w, h, 4 end
  end
  for i = 0, w * h - 1 do -- no transparent pixel: RGB
    out[3 * i], out[3 * i + 1], out[3 * i + 2] = out[4 * i], out[4 * i + 1], out[4 * i + 2]
  end
  return out, w, h, 3
end

-- -- EXIF ---------------------------------------------------------------------------------------------

-- The orientation that a TIFF header's first list of entries says
local function tiff_orientation(tiff)
  local little = tiff:sub(1, 2) == 'II'
  if not little and tiff:sub(1, 2) ~= 'MM' then return 1 end
  local function read(place, n)
    local v = 0
    for k = 0, n - 1 do
      local x = tiff:byte(place + 1 + (little and n - 1 - k or k))
      if not x then return 0 end
      v = v * 256 + x
    end
    return v
  end
  local first = read(4, 4)
  for k = 0, math.min(read(first, 2), 500) - 1 do
    local entry = first + 2 + 12 * k
    if read(entry, 2) == 0x0112 then
      local v = read(entry + 8, 2)
      return v >= 1 and v <= 8 and v or 1
    end
  end
  return 1
end

local function jpeg_exif(bytes)
  local at = 3
  while at + 3 <= #bytes do
    local mark, kind, a, b = bytes:byte(at, at + 3)
    if mark ~= 255 or kind == 0xDA or kind == 0xD9 then return nil end
    local size = a * 256 + b
    if kind == 0xE1 and bytes:sub(at + 4, at + 9) == 'Exif\0\0' then return bytes:sub(at + 10, at + 1 + size) end
    at = at + 2 + math.max(size, 2)
  end
end

local function png_exif(bytes)
  local at = 9
  while true do
    local a, b, c, d = bytes:byte(at, at + 3)
    local kind = bytes:sub(at + 4, at + 7)
    if not d or #kind < 4 or kind == 'IEND' then return nil end
    local size = ((a * 256 + b) * 256 + c) * 256 + d
    if kind == 'eXIf' then return bytes:sub(at + 8, at + 7 + size) end
    at = at + 12 + size
  end
end

--- The orientation that a picture's EXIF part says, 1 to 8; 1 where there is none or it is damaged.
function M.orientation(bytes)
  local exif
  if bytes:sub(1, 2) == '\255\216' then exif = jpeg_exif(bytes)
  elseif bytes:sub(1, 4) == '\137PNG' then exif = png_exif(bytes)
  elseif M.is_webp(bytes) then
    exif = riff_part(bytes, 'EXIF', 13)
    if exif and exif:sub(1, 6) == 'Exif\0\0' then exif = exif:sub(7) end
  end
  return exif and tiff_orientation(exif) or 1
end

--- A picture C x H x W as its EXIF orientation says it is to be seen.
function M.turn(t, orientation)
  if orientation >= 5 then t = t:transpose(2, 3) end
  if orientation == 2 or orientation == 3 or orientation == 6 or orientation == 7 then t = t:flip(3) end
  if orientation == 3 or orientation == 4 or orientation == 7 or orientation == 8 then t = t:flip(2) end
  return t:contiguous()
end

return M
