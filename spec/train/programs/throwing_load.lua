-- Operator new throws at call n from the first product on, while oneDNN is being loaded; 0: never. Run by onednn_throw_spec.lua.
local ffi = require 'ffi'
ffi.cdef 'void throw_at(long n);'
local n = tonumber(arg[1])
local amp = require 'amp'
local a = amp.ones(130, 130)
ffi.C.throw_at(n > 0 and n or -1)
local y = amp.matmul(a, a)
ffi.C.throw_at(-1)
assert(y:sum():item() == 130 ^ 3)
local info = ffi.string(require('amp.ffi').C.amp_plugin_info 'onednn')
assert((info:find('initialisers', 1, true) ~= nil) == (n > 0), info)
