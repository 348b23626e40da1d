--- Writing of zip archives whose members are stored as they are; with 64-bit sizes where they are needed.
local le = require('amp.io.file').le

local M = {}
local LOCAL, DIRECTORY, END, END64, LOCATOR64 = 0x04034b50, 0x02014b50, 0x06054b50, 0x06064b50, 0x07064b50
local NONE, FEW = 0xffffffff, 0xffff

-- What a member's two headers share: version, flags (names are UTF-8), stored, no time, checksum, sizes, length of the name.
local function common(m)
  local big = m.size >= NONE
  local size = le(big and NONE or m.size, 4)
  return le(big and 45 or 20, 2) .. le(0x800, 2) .. le(0, 2) .. le(0, 2) .. le(0x21, 2) .. le(m.crc, 4) .. size .. size .. le(#m.name, 2)
end

-- The members' headers, and where they lie; gives the place behind the last.
local function lay(members)
  local at = 0
  for _, m in ipairs(members) do
    local extra = m.size >= NONE and le(1, 2) .. le(16, 2) .. le(m.size, 8) .. le(m.size, 8) or ''
    if m.align then
      local gap = -(at + 30 + #m.name + #extra + 4) % m.align
      extra = extra .. le(0x4246, 2) .. le(gap, 2) .. ('\0'):rep(gap)
    end
    m.at, m.head = at, le(LOCAL, 4) .. common(m) .. le(#extra, 2) .. m.name .. extra
    at = at + #m.head + m.size
  end
  return at
end

local function entry(m)
  local wide = m.at >= NONE or m.size >= NONE
  local more = (m.size >= NONE and le(m.size, 8) .. le(m.size, 8) or '') .. (m.at >= NONE and le(m.at, 8) or '')
  local extra = wide and le(1, 2) .. le(#more, 2) .. more or ''
  -- no comment, disk number or attributes
  return le(DIRECTORY, 4) .. le(wide and 45 or 20, 2) .. common(m) .. le(#extra, 2) .. ('\0'):rep(10) .. le(math.min(m.at, NONE), 4) .. m.name .. extra
end

--- Write an archive.
-- @tparam function put takes a string, or a pointer and bytes (see file.replace)
-- @tparam table members list of {name, size, crc, write = function(put), align}; align: the data begin at a multiple of so many bytes
function M.write(put, members)
  local at, length = lay(members), 0
  for _, m in ipairs(members) do
    put(m.head)
    m.write(put)
  end
  for _, m in ipairs(members) do
    local e = entry(m)
    put(e)
    length = length + #e
  end
  local count = #members
  if at >= NONE or length >= NONE or count >= FEW then
    put(le(END64, 4) .. le(44, 8) .. le(45, 2) .. le(45, 2) .. le(0, 8) .. le(count, 8) .. le(count, 8) .. le(length, 8) .. le(at, 8))
    put(le(LOCATOR64, 4) .. le(0, 4) .. le(at + length, 8) .. le(1, 4))
  end
  put(le(END, 4) .. le(0, 4) .. le(math.min(count, FEW), 2):rep(2) .. le(math.min(length, NONE), 4) .. le(math.min(at, NONE), 4) .. le(0, 2))
end

return M
