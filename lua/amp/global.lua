--- `luajit -i -l amp.global` gives an interpreter with the global `amp`.
-- @module amp.global
local amp = require 'amp'
rawset(_G, 'amp', amp)
return amp
