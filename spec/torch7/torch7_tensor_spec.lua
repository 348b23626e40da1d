--- Torch7's own tensors: in place as they were, results given first, sizes, storages, masks, printing, files, classes.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local torch = require 'amp.torch7.own.torch'

local function is(u, values)
  assert.same(values, u:totable())
end

describe("a tensor of Torch7's own", function()
  it('changes in place, and gives something new as a function', function()
    local x = torch.Tensor { 1, 2 }
    is(x:add(1), { 2, 3 })
    is(x, { 2, 3 })
    is(torch.add(x, 1), { 3, 4 })
    is(x, { 2, 3 })
    is(x:add(2, torch.Tensor { 10, 20 }), { 22, 43 })
    is(x:mul(2):div(4), { 11, 21.5 })
    is(x:copy(torch.Tensor { 4, 9 }):sqrt(), { 2, 3 })
    is(torch.pow(x, 2), { 4, 9 })
    is(torch.pow(2, x), { 4, 8 })
    is(x:pow(2), { 4, 9 })
    is(x:cmul(torch.Tensor { 2, 3 }), { 8, 27 })
    is(x:addcmul(2, torch.Tensor { 1, 2 }, torch.Tensor { 3, 4 }), { 14, 43 })
    is(x:cmax(20), { 20, 43 })
    is(x:clamp(21, 30), { 21, 30 })
    local r = torch.Tensor()
    is(torch.add(r, x, 1), { 22, 31 })
    is(r, { 22, 31 })
    is(r:add(x, -1, x), { 0, 0 })
    is(r:exp(), { 1, 1 })
    is(r:exp(torch.Tensor { 0, 0, 0 }), { 1, 1, 1 })
    H.fails_here(function() x:add(torch.ones(3)) end, '2', '3')
    H.fails_here(function() x:add('a') end, 'string')
    -- as many elements in other sizes: no broadcasting
    is(torch.Tensor { 1, 2 }:add(torch.Tensor { { 1 }, { 2 } }), { 2, 4 })
  end)
  it('reduces to numbers and keeps dimensions', function()
    local x = torch.Tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.equal(21, x:sum())
    is(x:sum(1), { { 5, 7, 9 } })
    is(x:mean(2), { { 2 }, { 5 } })
    local v, i = x:max(2)
    is(v, { { 3 }, { 6 } })
    is(i, { { 3 }, { 3 } })
    assert.equal(6, x:max())
    local a, b = torch.Tensor(), torch.LongTensor()
    torch.max(a, b, x, 1)
    is(a, { { 4, 5, 6 } })
    is(b, { { 2, 2, 2 } })
    is(torch.sort(torch.Tensor { 3, 1, 2 }, true), { 3, 2, 1 })
    is(x:cumsum(2), { { 1, 3, 6 }, { 4, 9, 15 } })
    is(x:std(1, true), { { 1.5, 1.5, 1.5 } })
    assert.equal(5, torch.Tensor { 3, 4 }:norm())
    assert.equal(11, torch.dot(torch.Tensor { 1, 2 }, torch.Tensor { 3, 4 }))
    assert.equal(11, torch.Tensor { 1, 2 } * torch.Tensor { 3, 4 })
    is(x * torch.Tensor { 1, 0, 1 }, { 4, 10 })
    is(x * x:t(), { { 14, 32 }, { 32, 77 } })
    is(torch.addmm(torch.ones(2, 2), 2, x, x:t()), { { 29, 65 }, { 65, 155 } })
    is(torch.ones(2, 2):addmm(0, 1, x, x:t()), { { 14, 32 }, { 32, 77 } })
    assert.equal(7, torch.Tensor { 7 }:squeeze())
  end)
  it('has sizes as LongStorages, and storages that views share', function()
    local x = torch.Tensor(2, 3)
    assert.equal('torch.LongStorage', torch.type(#x))
    assert.same({ 2, 3 }, x:size():totable())
    assert.equal(3, (#x)[2])
    assert.equal(2, #x:size())
    assert.equal(0, torch.Tensor():dim())
    assert.equal('userdata', type(x))
    local y = torch.Tensor(x:storage(), 2, torch.LongStorage { 2 })
    y:fill(5)
    is(x, { { 0, 5, 5 }, { 0, 0, 0 } })
    x:resize(2):fill(1)
    assert.equal(6, x:storage():size())
    is(x:resize(6), { 1, 1, 5, 0, 0, 0 })
    is(y, { 1, 5 })
    local z = x.new(2)
    assert.equal('torch.DoubleTensor', z:type())
    z:set(x:narrow(1, 3, 2))
    z[1] = 9
    assert.equal(9, x[3])
    assert.is_true(torch.pointer(x:storage()) == torch.pointer(z:storage()))
    is(torch.Tensor(2, 2):resizeAs(torch.ones(3)):fill(2), { 2, 2, 2 })
    H.fails_here(function() x:view(4) end, '6', '4')
    H.fails_here(function() return x[7] end, '7', '6')
    H.fails_here(function() return torch.LongStorage(2)[3] end, '3')
  end)
  it('is indexed by numbers, ranges and masks of bytes', function()
    local x = torch.range(1, 6):view(2, 3)
    assert.equal(4, x[2][1])
    assert.equal(4, x[{ 2, 1 }])
    is(x[{ {}, { 2, 3 } }], { { 2, 3 }, { 5, 6 } })
    is(x[{ { -1 }, 1 }], { 4 })
    is(x[x:gt(4)], { 5, 6 })
    x[x:gt(4)] = 0
    x[{ 1, { 1, 2 } }] = torch.Tensor { 8, 9 }
    x[{ {}, 3 }] = 7
    is(x, { { 8, 9, 7 }, { 4, 0, 7 } })
    assert.equal('torch.ByteTensor', torch.type(x:eq(7)))
    is(torch.eq(x, 7), { { 0, 0, 1 }, { 0, 0, 1 } })
    is(x:index(2, torch.LongTensor { 3, 1 }), { { 7, 8 }, { 7, 4 } })
    is(torch.zeros(2, 2):scatter(1, torch.LongTensor { { 2, 1 } }, 5), { { 0, 5 }, { 5, 0 } })
    is(torch.zeros(3):maskedFill(torch.ByteTensor { 1, 0, 2 }, 4), { 4, 0, 4 })
    is(torch.zeros(3):maskedCopy(torch.ByteTensor { 1, 0, 1 }, torch.Tensor { 5, 6 }), { 5, 0, 6 })
    H.fails_here(function() return x[torch.ByteTensor { 1 }] end, 'mask')
  end)
  it('counts in integers as C does', function()
    is(torch.IntTensor { 7, -7 }:div(2), { 3, -3 })
    is(torch.IntTensor { 7, 9 } / 2, { 3, 4 })
    is(torch.IntTensor { 1, 2 }:add(1.9), { 2, 3 })
    is(torch.IntTensor { 7, 8 }:cdiv(torch.IntTensor { 2, 3 }), { 3, 2 })
    assert.equal(3, torch.ByteTensor { 1, 2 }:sum())
    is(torch.LongTensor(torch.LongStorage { 2, 3 }), { 2, 3 })
    assert.same({ 2, 3 }, torch.DoubleTensor(torch.LongStorage { 2, 3 }):size():totable())
  end)
  it('converts, copies and joins', function()
    local x = torch.Tensor { 1.5, 2.5 }
    assert.equal('torch.FloatTensor', x:float():type())
    is(x:int(), { 1, 2 })
    assert.equal('torch.IntTensor', torch.zeros(2):typeAs(torch.IntTensor()):type())
    is(torch.cat(x, x, 1), { 1.5, 2.5, 1.5, 2.5 })
    is(torch.cat({ x, x }, 2), { { 1.5, 1.5 }, { 2.5, 2.5 } })
    is(x:clone():apply(function(v) return v * 2 end), { 3, 5 })
    is(torch.range(1, 3):map(torch.range(4, 6), function(a, b) return a * b end), { 4, 10, 18 })
    is(torch.repeatTensor(x, 2), { 1.5, 2.5, 1.5, 2.5 })
    assert.equal(2, #torch.range(1, 4):split(2))
    local a = x:amp()
    assert.is_true(amp.is_tensor(a))
    is(torch.fromAmp(a * 2), { 3, 5 })
    assert.is_true(torch.isTensor(x) and not torch.isTensor(a))
    assert.is_true(torch.isTypeOf(x, 'torch.DoubleTensor'))
    torch.setdefaulttensortype 'torch.FloatTensor'
    assert.equal('torch.FloatTensor', torch.Tensor(1):type())
    torch.setdefaulttensortype 'torch.DoubleTensor'
    H.fails_here(function() torch.setdefaulttensortype 'torch.IntTensor' end, 'floats')
  end)
  it('prints as it did', function()
    assert.equal(' 1  2\n 3  4\n[torch.DoubleTensor of size 2x2]\n', tostring(torch.Tensor { { 1, 2 }, { 3, 4 } }))
    assert.equal(' 0.5000\n 1.5000\n[torch.DoubleTensor of size 2]\n', tostring(torch.Tensor { 0.5, 1.5 }))
    assert.equal('[torch.FloatTensor with no dimension]\n', tostring(torch.FloatTensor()))
    assert.is_truthy(tostring(torch.ones(2, 2, 2)):find('(2,.,.) = ', 1, true))
    assert.equal(' 2\n 3\n[torch.LongStorage of size 2]\n', tostring(torch.LongStorage { 2, 3 }))
  end)
  it('draws random numbers', function()
    torch.manualSeed(1.5)
    local a = torch.uniform(2, 3)
    assert.is_true(a >= 2 and a < 3)
    torch.manualSeed(1)
    assert.equal(a, torch.uniform(2, 3))
    for _ = 1, 50 do
      local v = torch.random(2, 4)
      assert.is_true(v == 2 or v == 3 or v == 4)
    end
    local x = torch.Tensor(1000):bernoulli(0.25)
    assert.is_true(math.abs(x:mean() - 0.25) < 0.1 and x:max() == 1)
    assert.is_true(math.abs(torch.Tensor(1000):normal(3, 0.1):mean() - 3) < 0.05)
    assert.same({ 1, 2, 3 }, torch.sort(torch.randperm(3)):totable())
  end)
end)

describe("Torch7's classes and files", function()
  it('have parents, constructors and metamethods', function()
    local space = {}
    local A = torch.class('spec_t7.A', nil, space)
    function A:__init(v) self.v = v end
    function A:get() return self.v end
    function A:__tostring__() return 'A of ' .. self.v end
    local B, parent = torch.class('spec_t7.B', 'spec_t7.A', space)
    function B:__init(v) parent.__init(self, v * 2) end
    function B.__add__(a, b) return a.v + b.v end
    local b = space.B(4)
    assert.equal(8, b:get())
    assert.equal('A of 8', tostring(b))
    assert.equal(16, b + b)
    assert.equal('spec_t7.B', torch.type(b))
    assert.is_true(torch.isTypeOf(b, 'spec_t7.A') and torch.isTypeOf(b, 'A') and not torch.isTypeOf(space.A(1), 'spec_t7.B'))
    assert.is_true(torch.factory 'spec_t7.B'().v == nil)
    H.fails_here(function() torch.class('spec_t7.B', nil, space) end, 'spec_t7.B')
    -- an index of its own, given when there are objects and children already
    assert.is_nil(b.absent)
    function A.__index__(self, key)
      if key == 'absent' then return 'found in ' .. self.v, true end
    end
    assert.equal('found in 8', b.absent)
    function B.__index__(_, key) return key .. '!', true end
    assert.same({ 'absent!', 'found in 1' }, { b.absent, space.A(1).absent })
    B.__index__ = nil
    local kept = {}
    function A:__newindex__(key, value)
      kept[key] = value
      return rawget(self, 'v') ~= nil
    end
    b.w = 3
    assert.same({ 3 }, { kept.w, rawget(b, 'w') })
    local C = torch.class('spec_t7.Late', 'spec_t7.A', space)
    assert.equal('found in 5', space.Late(5).absent)
    function C:later() return self.v + 1 end
    assert.equal(6, space.Late(5):later())
    A.__index__, A.__newindex__ = nil, nil
    H.fails_here(function() torch.class('spec_t7.C', 'spec_t7.Nonsuch', space) end, 'Nonsuch')
    for _, mode in ipairs { 'binary', 'ascii' } do
      local path = H.tmp('classes_' .. mode .. '.t7')
      local x = torch.Tensor { { 1, 0.1 }, { 3, -4e-300 } }
      torch.save(path, { b = b, again = b, x = x, row = x[2], n = 5, [3] = true, s = 'a\nb', size = x:size(), bytes = torch.ByteTensor { 200 } }, mode)
      local r = torch.load(path)
      assert.is_true(r.b == r.again and torch.type(r.b) == 'spec_t7.B')
      assert.same({ 8, 5, true, 'a\nb' }, { r.b.v, r.n, r[3], r.s })
      is(r.x, x:totable())
      is(r.bytes, { 200 })
      assert.equal('torch.LongStorage', torch.type(r.size))
      r.x[2][1] = 7
      assert.equal(7, r.row[1]) -- one memory
      H.close(amp.torch7.load(path).x, { s = { 2, 2 }, v = { 1, 0.1, 3, -4e-300 } }, H.exact) -- the other reader agrees
    end
  end)
  it('report what is wrong', function()
    H.fails_here(function() torch.load '/nowhere.t7' end, '/nowhere.t7', 'No such file')
    H.fails_here(function() torch.save('/nowhere/x.t7', 1) end, '/nowhere/x.t7')
    local path = H.tmp 'cut.t7'
    torch.save(path, torch.ones(100))
    H.write(path, H.read(path):sub(1, 200))
    H.fails_here(function() torch.load(path) end, 'byte')
    local text = torch.serialize { torch.ones(2), 'x' }
    is(torch.deserialize(text)[1], { 1, 1 })
    local f = torch.MemoryFile()
    f:writeInt(5)
    f:writeDouble(0.5)
    f:writeString 'end'
    f:seek(1)
    assert.same({ 5, 0.5, 'end' }, { f:readInt(), f:readDouble(), f:readString '*a' })
    local disk = torch.DiskFile(path, 'w'):binary()
    disk:writeObject { 1, 2 }
    disk:close()
    assert.same({ 1, 2 }, torch.DiskFile(path):binary():readObject())
  end)

  it('takes tensors where tensors belong', function()
    local x = amp.ones(2)
    for _, name in ipairs {'expandAs', 'viewAs', 'typeAs', 'isSameSizeAs', 'copy', 'maskedSelect', 'maskedFill', 'maskedCopy'} do
      H.fails_here(function() local _ = x[name](x, 3) end, name, 'argument 1', 'tensor', 'number')
    end
    H.fails_here(function() local _ = x:index(1, 3) end, 'index', 'argument 2', 'tensor', 'number')
    H.fails_here(function() local _ = x:apply(3) end, 'apply', 'function', 'number')
    H.fails_here(function() local _ = x:uniform('a') end, 'uniform', 'number', 'string')
  end)
end)
