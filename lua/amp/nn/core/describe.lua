--- Modules as text: a tree of children with their settings, and parameter counts beside them.
--
--   nn.Sequential(
--     (1): nn.Linear(784 -> 128)  100480 parameters
--     (2-4): 3 x nn.Linear(128 -> 128)  16512 parameters each
--   )  150016 parameters
--
-- A layer by itself is one line without a count. A module with children shows tensors of its own, too. Neighbours that read alike are one line; of a long
-- list only the ends are shown. A module that contains itself is named, not entered again. A class with a
-- `describe` of its own prints as that says.
local Module = require 'amp.nn.module'

local M = {}

local MOST, EDGE = 40, 15 -- lines of children shown whole; else this many at each end

--- Parameters of a module, and how many of them are frozen; each tensor counts once.
function M.count(module)
  local all, frozen = 0, 0
  for _, p in ipairs(module:parameters()) do
    local n = p:numel()
    all = all + n
    if not p.requires_grad then frozen = frozen + n end
  end
  return all, frozen
end

local function words(all, frozen)
  if all == 0 then return '' end
  return string.format('  %d parameter%s%s', all, all == 1 and '' or 's',
    frozen == 0 and '' or frozen == all and ', frozen' or string.format(', %d of them frozen', frozen))
end

local function counted(module) return words(M.count(module)) end

local tree

local function child_text(child, path)
  if path[child] then return child.__name .. '(...)  contains itself' end
  if child.describe ~= Module.describe then return tostring(child) end
  local text, leaf = tree(child, path)
  return leaf and text .. counted(child) or text
end

-- Lines of the children, three and more numbered neighbours of the same text in one: a list of {name, text}.
local function rows(self, path)
  local runs, list = {}, {}
  for name, child in self:named_children() do
    local text, run = child_text(child, path), runs[#runs]
    if not (run and run.text == text and type(name) == 'number' and type(run[1]) == 'number') then
      run = {text = text}
      runs[#runs + 1] = run
    end
    run[#run + 1] = name
  end
  for _, run in ipairs(runs) do
    if #run >= 3 then
      list[#list + 1] = {run[1] .. '-' .. run[#run], #run .. ' x ' .. run.text:gsub('( parameters?)([^\n]*)$', '%1 each%2')}
    else
      for _, name in ipairs(run) do list[#list + 1] = {tostring(name), run.text} end
    end
  end
  return list
end

-- Text of a module, and whether it has no children.
tree = function(self, path)
  path[self] = true
  local list = rows(self, path)
  path[self] = nil
  local head = string.format('%s(%s', self.__name, self:extra_repr())
  if #list == 0 then return head .. ')', true end
  local lines = {head}
  for name, t in Module.parts(self, 'parameter') do
    local n = t:numel()
    lines[#lines + 1] = string.format('  (%s): %s%s', tostring(name), tostring(t:size()), words(n, t.requires_grad and 0 or n))
  end
  for i, row in ipairs(list) do
    if #list <= MOST or i <= EDGE or i > #list - EDGE then
      lines[#lines + 1] = string.format('  (%s): %s', row[1], (row[2]:gsub('\n', '\n  ')))
    elseif i == EDGE + 1 then
      lines[#lines + 1] = string.format('  ... %d more', #list - 2 * EDGE)
    end
  end
  lines[#lines + 1] = ')' .. counted(self)
  return table.concat(lines, '\n')
end

--- The module as text: its class, its settings, its children as a tree with parameter counts.
function Module:describe() return (tree(self, {})) end

return M
