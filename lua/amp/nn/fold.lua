--- Windows of images as columns, and back: Unfold and Fold.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local im2col, col2im = amp.im2col, amp.col2im
local M = {}

local usual = {dilation = 1, padding = 0, stride = 1}

local function setup(self, names, required, ...)
  local o = options.arguments(self.__name, names, required, usual, ...)
  for _, name in ipairs(names) do self[name] = options.list(self.__name, name, o[name], 2, name == 'padding' and 0 or 1) end
end

local function repr(self, names)
  local parts = {}
  for _, name in ipairs(names) do
    local v, u = self[name], usual[name]
    if v[1] ~= u or v[2] ~= u then parts[#parts + 1] = name .. ' ' .. options.show_pair(v) end
  end
  return table.concat(parts, ', ')
end

--- nn.Unfold(kernel_size, {dilation = 1, padding = 0, stride = 1}): a number or {height, width} each.
-- N x C x H x W gives N x C kH kW x windows; a sample without N likewise.
-- @usage nn.Unfold(3, {padding = 1})
local Unfold = Module:extend('nn.Unfold')
M.Unfold = Unfold
local unfold_names = {'kernel_size', 'dilation', 'padding', 'stride'}

function Unfold:init(...) setup(self, unfold_names, 1, ...) end
function Unfold:forward(x) return im2col(x, self.kernel_size, self.dilation, self.padding, self.stride) end
Unfold.transient = Unfold.forward
function Unfold:extra_repr() return repr(self, unfold_names) end

--- nn.Fold(output_size, kernel_size, {dilation = 1, padding = 0, stride = 1}): what lies in several windows is added.
-- N x C kH kW x windows gives N x C x output_size.
-- @usage nn.Fold({8, 8}, 2, {stride = 2})
local Fold = Module:extend('nn.Fold')
M.Fold = Fold
local fold_names = {'output_size', 'kernel_size', 'dilation', 'padding', 'stride'}

function Fold:init(...) setup(self, fold_names, 2, ...) end
function Fold:forward(x) return col2im(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride) end
Fold.transient = Fold.forward
function Fold:extra_repr() return repr(self, fold_names) end

return M
