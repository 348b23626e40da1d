--- For programs that embed Lua: tensors that C hands in.
-- The other way needs nothing: `lua_topointer` of a tensor gives its `amp_ref`, which lives as
-- long as the Lua value; `amp_retain` makes one of C's own.
-- @module amp.embed
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local util = require 'amp.util'

local M = {}

local pointer_t = ffi.typeof 'amp_ref *'

--- The tensor behind a handle of C's; nothing is copied, and the handle stays C's to release.
-- @tparam lightuserdata|cdata pointer address of an `amp_ref` (`lua_pushlightuserdata(L, &ref)`, or an `amp_ref *`)
-- @treturn Tensor another handle of the same tensor
-- @raise where it is no such pointer, or the handle is empty
function M.from_ref(pointer)
  local ok, p = pcall(ffi.cast, pointer_t, pointer)
  if not ok or type(pointer) == 'string' or type(pointer) == 'number' or pointer == nil then
    err.throw('from_ref', 'needs the address of an amp_ref (a light userdata or an amp_ref *), got %s', util.show(pointer))
  end
  if p.ptr_ == nil then err.throw('from_ref', 'the handle is empty: nothing was put into it, or it was released') end
  local out = core.ref_t()
  core.C.amp_retain(out, p)
  return out
end

return M
