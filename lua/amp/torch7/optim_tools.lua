--- optim.Logger and optim.ConfusionMatrix of amp.torch7. Called by amp.torch7.optim with its module table.
local amp = require 'amp'
local next_key = require('amp.core.keys').next
local util = require 'amp.util'
local files = require 'amp.log.files'
local adapt = require 'amp.torch7.adapt'
local raise = require('amp.error').throw

return function(M)
  -- -- Logger -------------------------------------------------------------------------------------

  --- optim.Logger([path], [timestamp]): columns of numbers in a text file, or on the screen; see amp.Logger for more.
  local Logger = {}
  Logger.__index = Logger
  Logger.__typename = 'optim.Logger'
  function M.Logger(path, timestamp)
    local self = setmetatable({path = path, name = path or 'stdout', columns = {}, showPlot = true}, Logger)
    if path then
      local why
      local target = timestamp and path .. '-' .. os.date '%Y_%m_%d_%X' or path
      local folder = target:match '^(.*)/[^/]*$'
      local made = true
      if folder and folder ~= '' then made, why = files.make_folder(folder) end
      if made then self.file, why = files.append(target, true) end
      if not self.file then raise('torch7.optim.Logger', "cannot write '%s': %s", target, why) end
    end
    return self
  end
  local function line(self, cells)
    if self.file then
      local ok, why = self.file:write(table.concat(cells, '\t') .. '\n')
      if not ok then raise('torch7.optim.Logger', "cannot write '%s': %s", self.path, why) end
    end
    return self
  end
  function Logger:setNames(names)
    self.names = names
    return line(self, names)
  end
  --- Add a row: values in the order of the names, or by name.
  function Logger:add(values)
    if not self.names then self:setNames(util.keys(values)) end
    local row, used = {}, {}
    for i, name in ipairs(self.names) do
      local v = values[name]
      used[name] = v ~= nil
      if v == nil then
        v = values[i]
        used[i] = true
      end
      v = adapt.amp(v)
      if amp.is_tensor(v) then v = v:item() end
      row[i] = v == nil and '' or tostring(v)
      self.columns[name] = self.columns[name] or {}
      table.insert(self.columns[name], tonumber(v) or 0 / 0)
    end
    for k in pairs(values) do
      if not used[k] then raise('torch7.optim.Logger', "there is no column '%s' (columns: %s)", tostring(k), table.concat(self.names, ', ')) end
    end
    return line(self, row)
  end
  function Logger:style(styles)
    self.styles = styles
    return self
  end
  function Logger:setlogscale(state) self.logscale = state end
  function Logger:display(state) self.showPlot = state end
  --- The columns as a figure of amp.plot, which is also saved beside the file; names of columns choose some.
  function Logger:plot(...)
    local columns = {}
    for _, name in ipairs {...} do
      if not self.columns[name] then raise('torch7.optim.Logger', "there is no column '%s'", tostring(name)) end
      columns[name] = self.columns[name]
    end
    local fig = amp.plot.curves(next_key(columns) and columns or self.columns)
    if self.path then fig:save(self.path .. '.png') end
    return fig
  end

  -- -- ConfusionMatrix ------------------------------------------------------------------------------

  --- optim.ConfusionMatrix(n, [names]) or optim.ConfusionMatrix(names). Classes below 1 do not count.
  local Matrix = {}
  Matrix.__index = Matrix
  Matrix.__typename = 'optim.ConfusionMatrix'
  function M.ConfusionMatrix(classes, names)
    if type(classes) == 'table' then names = classes end
    local n = type(classes) == 'number' and classes or type(classes) == 'table' and #classes or 0
    if n < 1 then raise('torch7.optim.ConfusionMatrix', 'a number of classes or their names expected, got %s', util.show(classes)) end
    return setmetatable({nclasses = n, classes = names or {}}, Matrix):zero()
  end
  function Matrix:zero()
    self.mat = amp.zeros(self.nclasses, self.nclasses, {dtype = 'int64'})
    self.totalValid, self.averageValid, self.averageUnionValid, self.valids, self.unionvalids = 0, 0, 0, {}, {}
    return self
  end
  -- A list of classes: those of a vector or a column, or the best of each row of scores.
  local function classes_of(v)
    v = adapt.amp(v)
    if not amp.is_tensor(v) then v = amp.tensor(type(v) == 'table' and v or {v}, {dtype = 'float64'}) end
    v = v:detach()
    if v:dim() > 2 then raise('torch7.optim.ConfusionMatrix', 'classes or rows of scores expected, got %s', tostring(v:size())) end
    if v:dim() == 2 and v:size(2) > 1 then v = v:argmax(2) end
    return v:reshape(-1):long():tolist()
  end
  --- Add guesses (classes, or a row of scores each) and their classes.
  function Matrix:batchAdd(guesses, targets)
    local n, t, g = self.nclasses, classes_of(targets), classes_of(guesses)
    if #g ~= #t then raise('torch7.optim.ConfusionMatrix', '%d guesses for %d classes', #g, #t) end
    local m = self.mat:tolist()
    for i = 1, #t do
      if t[i] > n or g[i] < 1 or g[i] > n then
        raise('torch7.optim.ConfusionMatrix', 'class %d (guessed %d) of example %d is not from 1 to %d', t[i], g[i], i, n)
      end
      if t[i] >= 1 then m[t[i]][g[i]] = m[t[i]][g[i]] + 1 end
    end
    self.mat = amp.tensor(m, {dtype = 'int64'})
    return self
  end
  --- One guess and its class; both may be scores of every class.
  function Matrix:add(guess, target)
    local function scores(v)
      v = adapt.amp(v)
      return amp.is_tensor(v) and v:dim() == 1 and v:numel() == self.nclasses and self.nclasses > 1 and v:detach():argmax():item() or v
    end
    return self:batchAdd(scores(guess), scores(target))
  end
  function Matrix:updateValids()
    local m, right, total, sum, seen, unions, of_unions = self.mat:tolist(), 0, 0, 0, 0, 0, 0
    for i = 1, self.nclasses do
      local row, column = 0, 0
      for j = 1, self.nclasses do row, column = row + m[i][j], column + m[j][i] end
      self.valids[i] = row > 0 and m[i][i] / row or 0 / 0
      self.unionvalids[i] = row + column > 0 and m[i][i] / (row + column - m[i][i]) or 0 / 0
      right, total = right + m[i][i], total + row
      if row > 0 then
        sum, seen = sum + self.valids[i], seen + 1
        unions, of_unions = unions + self.unionvalids[i], of_unions + 1
      end
    end
    self.totalValid, self.averageValid = total > 0 and right / total or 0, seen > 0 and sum / seen or 0
    self.averageUnionValid = of_unions > 0 and unions / of_unions or 0
    return self
  end
  --- Rates of false acceptance and of false rejection, a class each.
  function Matrix:farFrr()
    local m, far, frr, total = self.mat:tolist(), {}, {}, self.mat:sum():item()
    for i = 1, self.nclasses do
      local row, column = 0, 0
      for j = 1, self.nclasses do row, column = row + m[i][j], column + m[j][i] end
      far[i] = (column - m[i][i]) / (total - row)
      frr[i] = (row - m[i][i]) / row
    end
    return far, frr
  end
  function Matrix:__tostring()
    self:updateValids()
    local m, lines = self.mat:tolist(), {}
    for i = 1, self.nclasses do
      local cells = {}
      for j = 1, self.nclasses do cells[j] = ('%6d'):format(m[i][j]) end
      lines[i] = ('%s   %6.2f%%  %s'):format(table.concat(cells, ' '), self.valids[i] * 100, tostring(self.classes[i] or i))
    end
    lines[#lines + 1] = ('right: %.2f%% of all, %.2f%% of a class on average'):format(self.totalValid * 100, self.averageValid * 100)
    lines[#lines + 1] = (' + average row correct: %s%%\n + average rowUcol correct (VOC measure): %s%%\n + global correct: %s%%'):format(
      self.averageValid * 100, self.averageUnionValid * 100, self.totalValid * 100)
    return table.concat(lines, '\n')
  end
  Matrix.__tostring__ = Matrix.__tostring

  require('amp.core.class').guard(Logger, 'torch7.optim.Logger', 'log')
  require('amp.core.class').guard(Matrix, 'torch7.optim.ConfusionMatrix', 'confusion')
end
