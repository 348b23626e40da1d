--- Messages of Jupyter's protocol 5.3: parts, signatures, headers.
local json = require 'amp.io.json'
local sha = require 'amp.jupyter.sha256'

local M = {}

local MARK = '<IDS|MSG>'

--- A random name.
function M.id()
  local f = io.open('/dev/urandom', 'rb')
  local bytes = f:read(16)
  f:close()
  return (bytes:gsub('.', function(c) return ('%02x'):format(c:byte()) end))
end

--- Text that JSON takes: bytes that are no UTF-8 become question marks.
function M.clean(text)
  text = text:gsub('[\1-\8\11\12\14-\26\28-\31\127]', '?'):gsub('%z', '?')
  if pcall(json.encode, text) then return text end
  return (text:gsub('[\128-\255]', '?'))
end

--- Reads a message; nil, why, where it is none or its signature is wrong.
-- @treturn ?table ids, header, content, and raw: the header's text
function M.read(parts, key)
  local at
  for i = 1, #parts do
    if parts[i] == MARK then
      at = i
      break
    end
  end
  if not at or #parts < at + 5 then return nil, 'a message without its parts' end
  if key ~= '' and parts[at + 1] ~= sha.hmac(key, unpack(parts, at + 2, at + 5)) then return nil, 'a message with a wrong signature' end
  local ok, header = pcall(json.decode, parts[at + 2])
  local fine, content = pcall(json.decode, parts[at + 5])
  if not ok or not fine or type(header) ~= 'table' or type(content) ~= 'table' then return nil, 'a message that is no JSON' end
  return { ids = { unpack(parts, 1, at - 1) }, header = header, content = content, raw = parts[at + 2], parent = parts[at + 3] }
end

--- Builds a message.
-- @tparam table ids identities, or the topic
-- @tparam string kind msg_type
-- @tparam table content
-- @tparam ?string parent the text of the header that it answers
function M.build(ids, kind, content, parent, key, session)
  local header = json.encode {
    msg_id = M.id(), session = session, username = 'amp', date = os.date '!%Y-%m-%dT%H:%M:%S.000000Z', msg_type = kind, version = '5.3',
  }
  local parts = { unpack(ids) }
  local body = { header, parent or '{}', '{}', json.encode(content) }
  parts[#parts + 1] = MARK
  parts[#parts + 1] = key ~= '' and sha.hmac(key, unpack(body)) or ''
  for i = 1, 4 do parts[#parts + 1] = body[i] end
  return parts
end

local digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

--- Base64, for pictures.
function M.base64(s)
  local out = {}
  for i = 1, #s, 3 do
    local a, b, c = s:byte(i, i + 2)
    local n = a * 65536 + (b or 0) * 256 + (c or 0)
    for k = 3, 0, -1 do
      local d = math.floor(n / 64 ^ k) % 64 + 1
      out[#out + 1] = (k == 1 and not b or k == 0 and not c) and '=' or digits:sub(d, d)
    end
  end
  return table.concat(out)
end

return M
