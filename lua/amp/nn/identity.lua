--- nn.Identity: gives back what it is called with.
local Module = require 'amp.nn.module'

local Identity = Module:extend('nn.Identity')

function Identity.forward(_, ...) return ... end

return Identity
