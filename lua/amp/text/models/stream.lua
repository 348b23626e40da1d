--- Tokens as pieces of text while they come. A character of several bytes may lie in several tokens: a piece is given once it is whole.
-- @module amp.text.models.stream
local M = {}

-- Bytes at the end of a text that begin a character whose other bytes are missing.
local function unfinished(text)
  for back = 1, math.min(3, #text) do
    local b = text:byte(#text - back + 1)
    if b >= 0xC0 then
      local size = b >= 0xF0 and 4 or b >= 0xE0 and 3 or 2
      return size > back and back or 0
    elseif b < 0x80 then
      return 0
    end
  end
  return 0
end

local REPLACED = '\239\191\189'

--- Gives a function(row, id), which calls on_token(piece, row) and gives what that gives; function(nil) gives what is left.
-- @tparam nn.Module model whose tokenizer decodes; without one the piece is the id
function M.new(model, on_token, rows)
  local tok = model:get_tokenizer()
  if not tok then
    return function(row, id)
      if row then return on_token(id, row) end
    end
  end
  local ids, given = {}, {}
  for r = 1, rows do ids[r], given[r] = {}, '' end
  -- The text of all ids so far, since a token's text may depend on those before it; decoders that clean up may change its end.
  local function text_of(r) return tok:decode(ids[r], { skip_special_tokens = true }) end
  local function give(r, text, keep)
    local whole = text:sub(1, #text - keep)
    if #whole <= #given[r] or whole:sub(1, #given[r]) ~= given[r] then return nil end
    local piece = whole:sub(#given[r] + 1)
    given[r] = whole
    return on_token(piece, r)
  end
  return function(row, id)
    if row == nil then
      for r = 1, rows do
        if #ids[r] > 0 then give(r, text_of(r), 0) end
      end
      return nil
    end
    ids[row][#ids[row] + 1] = id
    local text = text_of(row)
    if text:sub(-3) == REPLACED then return nil end
    return give(row, text, unfinished(text))
  end
end

return M
