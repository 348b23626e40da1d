--- Several texts in one row, so that no place is padding.
-- @module amp.text.models.pack
local amp = require 'amp'
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'

local OP = 'text.models.pack'

-- Which texts go into which row: the longest first, each into the fullest row that has room.
local function rows_of(lists, length)
  local order, rows = {}, {}
  for i = 1, #lists do order[i] = i end
  table.sort(order, function(a, b)
    if #lists[a] ~= #lists[b] then return #lists[a] > #lists[b] end
    return a < b
  end)
  for _, i in ipairs(order) do
    local best
    for _, row in ipairs(rows) do
      if row.used + #lists[i] <= length and (not best or row.used > best.used) then best = row end
    end
    if not best then
      best = { used = 0 }
      rows[#rows + 1] = best
    end
    best[#best + 1], best.used = i, best.used + #lists[i]
  end
  return rows
end

--- Texts in rows of one length; a model that gets segment_ids and position_ids gives what it gives for each text alone.
-- @tparam table lists of lists of ids
-- @tparam table given length of a row, pad (1: the id where nothing is)
-- @treturn table {ids, segment_ids, position_ids, labels}, each rows x length, int64; labels are -100 at a text's first id and at padding
-- @usage local b = amp.text.models.pack(texts, {length = 512})
-- local _, loss = model(b.ids, {segment_ids = b.segment_ids, position_ids = b.position_ids, labels = b.labels})
return function(lists, given)
  local o = options.read(OP, given, { 'length', 'pad' }, { pad = 1 })
  if type(lists) ~= 'table' or #lists == 0 then err.throw(OP, 'a list of lists of ids expected, got %s', util.show(lists)) end
  local length = options.integer(OP, 'length', o.length, 1)
  for i, list in ipairs(lists) do
    if type(list) ~= 'table' or #list == 0 then err.throw(OP, 'text %d is %s, a list of ids is expected', i, util.show(list)) end
    if #list > length then err.throw(OP, 'text %d has %d ids, length is %d: cut it', i, #list, length) end
  end
  local ids, segments, positions, labels = {}, {}, {}, {}
  for r, row in ipairs(rows_of(lists, length)) do
    ids[r], segments[r], positions[r], labels[r] = {}, {}, {}, {}
    for s, which in ipairs(row) do
      for p, id in ipairs(lists[which]) do
        local at = #ids[r] + 1
        ids[r][at], segments[r][at], positions[r][at], labels[r][at] = id, s, p, p > 1 and id or -100
      end
    end
    for at = #ids[r] + 1, length do ids[r][at], segments[r][at], positions[r][at], labels[r][at] = o.pad, #row + 1, 1, -100 end
  end
  local function tensor(t) return amp.tensor(t, { dtype = 'int64', device = 'cpu' }) end
  return { ids = tensor(ids), segment_ids = tensor(segments), position_ids = tensor(positions), labels = tensor(labels) }
end
