--- Files of amp.torch7: only regular files are read and written, whatever a path is made of.
local H = require 'spec.lib.helper'
local amp = require 'amp'
local own = require 'amp.torch7.own.torch'
local nn = require 'amp.torch7.own.nn'
local optim = require 'amp.torch7.optim'
local plain = amp.torch7.torch
local around = require 'amp.torch7.own.around'

local function pipe()
  local path = H.tmp 'pipe'
  os.remove(path)
  assert(os.execute(("mkfifo '%s'"):format(path)) == 0)
  return path
end

-- what writes to a path, and what reads from one; the path's own ending where there is one
local writers = {
  Logger = function(path) optim.Logger(path) end, DiskFile = function(path) own.DiskFile(path, 'w') end, both = function(path) own.DiskFile(path, 'rw') end,
  save = function(path) own.save(path, { 1 }) end, plain = function(path) plain.save(path, { 1 }, 'ascii') end,
  log = function(path) own.CmdLine():log(path) end,
}
local readers = {
  DiskFile = function(path) own.DiskFile(path) end, load = function(path) own.load(path) end, plain = function(path) plain.load(path) end,
}

describe("files of Torch7's scripts", function()
  it('are neither pipes nor devices nor folders, and their names are whole', function()
    local fifo, folder = pipe(), H.tmp 'folder'
    assert(os.execute(("mkdir -p '%s'"):format(folder)) == 0)
    local cut = H.tmp 'cut'
    os.remove(cut)
    for kind, list in pairs { write = writers, read = readers } do
      for name, f in pairs(list) do
        H.fails(function() f(cut .. '\0.txt') end, 'byte 0')
        for what, path in pairs { device = '/dev/null', pipe = fifo, folder = folder } do
          local ok, why = pcall(f, path)
          assert.is_false(ok, ('%s of %s: %s'):format(kind, what, name))
          assert.is_true(tostring(why):find(path, 1, true) ~= nil, tostring(why))
        end
      end
    end
    assert.is_nil(io.open(cut), 'a name was cut at its NUL')
    assert(os.execute(("test -p '%s'"):format(fifo)) == 0)
    os.remove(fifo)
  end)
  it('are written by nngraph only where that is a regular file', function()
    local _, graph = require 'amp.torch7.own.graph'(nn, own)
    local x = nn.Identity()()
    local g = nn.gModule({ x }, { nn.Linear(1, 1)(x) }).fg
    H.fails_here(function() graph.dot(g, '', H.tmp 'a' .. '\0b') end, 'byte 0')
    local path = H.tmp 'net'
    local text = graph.dot(g, '', path)
    assert.equal(text .. '\n', H.read(path .. '.dot'))
  end)
  it('of a logger begin anew, with the folders on the way', function()
    local path = H.tmp 'logs' .. "/a 'b/c/train.log"
    for _ = 1, 2 do
      local log = optim.Logger(path)
      log:setNames { 'loss', 'top1' }
      log:add { 0.5, 7 }
      assert.equal('loss\ttop1\n0.5\t7\n', H.read(path)) -- what was added is there at once
    end
  end)
  it('of a DiskFile are made, read again and written whole', function()
    local path = H.tmp 'disk'
    os.remove(path)
    local f = own.DiskFile(path, 'rw')
    assert.equal('', H.read(path))
    f:writeObject { 1, 'two' }
    f:close()
    f = own.DiskFile(path, 'rw')
    assert.equal('two', f:readObject()[2])
    f:close()
    own.DiskFile(path, 'w')
    assert.equal('', H.read(path))
    H.fails_here(function() own.DiskFile(path .. '.none') end, 'No such file')
    H.fails_here(function() own.load(path .. '.none') end, 'No such file')
  end)
  it('of a command line take what is printed, the last run only', function()
    local path, screen = H.tmp 'cmd.log', print
    for _ = 1, 2 do
      local cmd = own.CmdLine()
      cmd:silent()
      cmd:log(path, { rate = 1 })
      print('a', 2)
      rawset(_G, 'print', screen)
    end
    local text = H.read(path)
    assert.is_true(text:match '^%[program started on [^\n]*%]\nrate 1\na 2\n$' ~= nil, text)
  end)
  it('are found by paths under their whole name', function()
    local paths = around.paths()
    local path = H.tmp "it's here"
    own.save(path, 1)
    assert.is_true(paths.filep(path) and not paths.dirp(path) and paths.dirp '/' and not paths.filep '/')
    assert.is_false(paths.filep(path .. '\0x'))
    assert.is_false(paths.filep(path .. '.none'))
    local folder = H.tmp 'made' .. '/x/y'
    assert.is_true(paths.mkdir(folder) and paths.dirp(folder))
    assert.is_false(paths.mkdir(path .. '\0x'))
    assert.is_false(paths.mkdir(path))
    H.fails_here(function() paths.rmall(path .. '\0x', 'yes') end, 'byte 0')
    -- a name that looks like an option is a name
    local out = H.child([[
local paths = require 'amp.torch7.own.around'.paths()
assert(paths.mkdir '-rf' and paths.dirp '-rf' and #paths.dir '-rf' == 2)
assert(paths.rmall('-rf', 'yes') and not paths.dirp '-rf')
print 'fine']])
    assert.equal('fine\n', out)
  end)
end)
