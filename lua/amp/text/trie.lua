--- Tokens byte by byte: the longest one at a place of a text is found by reading each byte once.
--
-- A trie whose edges lie in one open hash table: (node, byte) -> node. Several roots may share it.
local bit = require 'bit'
local ffi = require 'ffi'

local band, bxor, rshift = bit.band, bit.bxor, bit.rshift
local MOST = 2 ^ 23 -- nodes, so that (node, byte) is less than 2^31

local M = {}
local Trie = {}
Trie.__index = Trie

local function slot_of(key, mask) return band(bxor(key, rshift(key, 15)) * 40503, mask) end

function M.new()
  local self = setmetatable({ nodes = 0, mask = 1023, used = 0 }, Trie)
  self.keys, self.behind = ffi.new('int32_t[?]', 1024), ffi.new('int32_t[?]', 1024)
  self.room = 1024
  self.ids = ffi.new('int32_t[?]', self.room)
  return self
end

--- A new root.
function Trie:node()
  local n = self.nodes + 1
  if n >= MOST then error('a vocabulary of too many bytes', 0) end
  self.nodes = n
  if n >= self.room then
    local ids = ffi.new('int32_t[?]', self.room * 2)
    ffi.copy(ids, self.ids, self.room * 4)
    self.ids, self.room = ids, self.room * 2
  end
  return n
end

local function grow(self)
  local size = (self.mask + 1) * 4
  local keys, behind = self.keys, self.behind
  local old = self.mask
  self.keys, self.behind, self.mask = ffi.new('int32_t[?]', size), ffi.new('int32_t[?]', size), size - 1
  for i = 0, old do
    local key = keys[i]
    if key ~= 0 then
      local at = slot_of(key, self.mask)
      while self.keys[at] ~= 0 do at = band(at + 1, self.mask) end
      self.keys[at], self.behind[at] = key, behind[i]
    end
  end
end

--- Adds a token; `from`: its first byte that counts.
function Trie:add(root, token, id, from)
  local node = root
  for i = from or 1, #token do
    local key = node * 256 + token:byte(i)
    local at = slot_of(key, self.mask)
    while self.keys[at] ~= 0 and self.keys[at] ~= key do at = band(at + 1, self.mask) end
    if self.keys[at] == 0 then
      self.keys[at], self.behind[at] = key, self:node()
      self.used = self.used + 1
      node = self.behind[at]
      if self.used * 2 > self.mask then grow(self) end
    else
      node = self.behind[at]
    end
  end
  self.ids[node] = id + 1
end

-- The rest of a search that did not end in the first places.
local function far(self, key, at)
  local keys, mask = self.keys, self.mask
  while keys[at] ~= key and keys[at] ~= 0 do at = band(at + 1, mask) end
  return keys[at] == key and self.behind[at] or 0
end

--- The node behind a node and a byte; 0: there is none. (Without a loop, so that a trace goes through it.)
function Trie:step(node, byte)
  local keys, mask, key = self.keys, self.mask, node * 256 + byte
  local at = slot_of(key, mask)
  local k = keys[at]
  if k == key then return self.behind[at] elseif k == 0 then return 0 end
  at = band(at + 1, mask)
  k = keys[at]
  if k == key then return self.behind[at] elseif k == 0 then return 0 end
  at = band(at + 1, mask)
  k = keys[at]
  if k == key then return self.behind[at] elseif k == 0 then return 0 end
  return far(self, key, band(at + 1, mask))
end

return M
