--- examples/segment.lua and examples/imagenet.lua learn, and a stopped run goes on as if it had not been.
local amp = require 'amp'
local H = require 'spec.lib.helper'

-- What an example returns, run silently with a command line.
local function run(name, ...)
  local path = H.root .. '/examples/' .. name .. '.lua'
  local chunk = assert(loadfile(path))
  setfenv(chunk, setmetatable({ arg = { [0] = path, ... }, print = function() end }, { __index = _G }))
  return chunk()
end

describe('examples of vision', function()
  local threads = amp.get_num_threads()
  before_each(function() amp.set_num_threads(1) end)
  after_each(function() amp.set_num_threads(threads) end)

  it('segment: tells most pixels of shapes from the background soon', function()
    local path = H.tmp 'segment.png'
    local r = run('segment', '--steps', '60', '--size', '32', '--test', '40', '--classes', '1', '--save', path)
    assert.is_true(r.iou > 0.8, r.iou)
    assert.are.equal(3, amp.data.read_image(path):size(1))
  end)

  it('imagenet: goes on from its checkpoint to the same loss', function()
    local a, b = H.tmp 'a.amp', H.tmp 'b.amp'
    local common = { '--drawn', '96', '--batch', '16', '--width', '8', '--epochs', '3' }
    local function train(path, ...)
      local words = { '--checkpoint', path, ... }
      for _, w in ipairs(common) do words[#words + 1] = w end
      return run('imagenet', unpack(words))
    end
    local whole = train(a)
    assert.are.equal(1, train(b, '--stop', '1').epochs)
    local rest = train(b)
    assert.are.equal(2, rest.first)
    assert.are.equal(3, rest.epochs)
    assert.are.equal(whole.loss, rest.loss)
    assert.are.equal(whole.top1, rest.top1)
  end)

  it('imagenet: takes a folder, and leaves bad pictures out', function()
    local root = H.tmp 'example-pictures'
    for _, part in ipairs { 'train', 'val' } do
      for k, class in ipairs { 'dark', 'light' } do
        os.execute(('mkdir -p %s/%s/%s'):format(root, part, class))
        for i = 1, 8 do
          amp.data.write_image(('%s/%s/%s/%d.png'):format(root, part, class, i), amp.rand(3, 30 + i, 40) * 0.4 + (k == 2 and 0.5 or 0))
        end
      end
    end
    H.write(root .. '/train/dark/3.png', 'no picture')
    local old = amp.warn
    amp.warn = function() end
    local ok, r = pcall(run, 'imagenet', '--data', root, '--batch', '4', '--size', '32', '--width', '8', '--epochs', '12', '--mixup', '0', '--mode', 'float32')
    amp.warn = old
    assert.is_true(ok, tostring(r))
    assert.is_true(r.best > 0.7, r.best)
  end)
end)
