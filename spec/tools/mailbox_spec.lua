--- amp.mailbox: tensors between Lua states. The second state is made by the FFI in the same thread, so that every order of things is the
-- same each time; then, where luv is, in threads that run at once, and the game of examples/hosts/love without its window.
local amp = require 'amp'
local ffi = require 'ffi'
local H = require 'spec.lib.helper'

ffi.cdef [[
  typedef struct spec_lua_state spec_lua_state;
  spec_lua_state *spec_lua_new(void) __asm__("luaL_newstate");
  void spec_lua_libs(spec_lua_state *L) __asm__("luaL_openlibs");
  int spec_lua_load(spec_lua_state *L, const char *code) __asm__("luaL_loadstring");
  int spec_lua_call(spec_lua_state *L, int args, int results, int handler) __asm__("lua_pcall");
  const char *spec_lua_text(spec_lua_state *L, int at, size_t *n) __asm__("lua_tolstring");
  void spec_lua_top(spec_lua_state *L, int n) __asm__("lua_settop");
  void spec_lua_close(spec_lua_state *L) __asm__("lua_close");
]]

local function quoted(...) return ('package.path, package.cpath = %q, %q '):format(package.path, package.cpath) .. table.concat({ ... }, ' ') end

-- A Lua state: run(code) gives its result as a string
local function new_state()
  local L = ffi.C.spec_lua_new()
  ffi.C.spec_lua_libs(L)
  local state = {}
  function state.run(code)
    local ok = ffi.C.spec_lua_load(L, code) == 0 and ffi.C.spec_lua_call(L, 0, 1, 0) == 0
    local text = ffi.C.spec_lua_text(L, -1, nil)
    text = text ~= nil and ffi.string(text) or nil
    ffi.C.spec_lua_top(L, 0)
    if not ok then error(text or 'an error that is no text', 0) end
    return text
  end
  function state.close() ffi.C.spec_lua_close(L) end
  state.run(quoted "amp = require 'amp' amp.errors 'string'")
  return state
end

local count = 0
local function name()
  count = count + 1
  return 'spec ' .. count
end

describe('a mailbox', function()
  it('gives values as they were put, in order, with a version each', function()
    local box = amp.mailbox(name(), { keep = 3 })
    assert.is_nil(box:take())
    local x = amp.arange(0, 6):view(2, 3)
    assert.equal(1, box:put(x))
    assert.equal(2, box:put { 1, 2.5, -0.0, 'two\0words', deep = { yes = true, no = false, [7] = { x:t(), x:long() } }, [''] = {} })
    assert.equal(3, box:put(math.huge))
    local got, version = box:take()
    assert.equal(1, version)
    H.same(got, x)
    assert.equal(x:data_ptr(), got:data_ptr()) -- shared
    got, version = box:take()
    assert.equal(2, version)
    H.same(got.deep[7][1], x:t():contiguous())
    H.same(got.deep[7][2], x:long())
    got.deep[7] = nil
    assert.same({ 1, 2.5, -0.0, 'two\0words', deep = { yes = true, no = false }, [''] = {} }, got)
    assert.equal(math.huge, (box:take()))
    assert.is_nil(box:take(0.01))
  end)

  it('drops the oldest letter where it is full, and with it the memory', function()
    local box = amp.mailbox(name())
    local live = H.live()
    for i = 1, 50 do box:put(amp.full({ 10000 }, i)) end
    collectgarbage()
    collectgarbage()
    assert.is_true(H.live() < live + 3 * 40000, 'letters that were dropped keep their tensors')
    assert.same({ 1, 50, 49 }, { box:count() })
    assert.is_truthy(tostring(box):find '1 letters of 50 put, 49 dropped')
    assert.equal(50, box:take()[1]:item())
    box:put(1)
    box:clear()
    assert.same({ 0, 51, 50 }, { box:count() })
    assert.is_nil(box:take())
  end)

  it('refuses what can not be handed over, and says where it stands', function()
    local box = amp.mailbox(name())
    local net = amp.nn.Linear(2, 2)
    H.fails_here(function() box:put { a = { net.weight } } end, 'value.a[1] requires grad', 'copy = true')
    H.fails_here(function() box:put { ['my key'] = net(amp.ones(1, 2)) } end, "value['my key'] has a history", 'detach()')
    H.fails_here(function() box:put { amp.from_ptr(ffi.new 'float[4]', { 4 }) } end, 'value[1] lies in memory', 'copy = true')
    H.fails_here(function() box:put { net = net } end, 'value.net: tensors', 'state_dict()')
    H.fails_here(function() box:put(print) end, 'got a function')
    H.fails_here(function() box:put(nil) end, 'got nil')
    H.fails_here(function() box:put { [print] = 1 } end, 'a key must be')
    local round = {}
    round.round = round
    H.fails_here(function() box:put(round) end, 'holds itself')
    local freed = amp.ones(2)
    freed:free()
    H.fails_here(function() box:put { freed } end, 'value[1]', 'freed')
    H.fails_here(function() box:put(1, { copi = true }) end, 'copy')
    H.fails_here(function() box:take 'soon' end, 'seconds must be')
    H.fails_here(function() box:take(-1) end, 'seconds must be')
    for _, method in ipairs { 'put', 'take', 'count', 'clear' } do
      H.fails_here(function() box[method]({}) end, 'with a colon')
    end
    assert.same({ 0, 0, 0 }, { box:count() }) -- nothing of all that is in it
    assert.equal(1, box:put({ net.weight, amp.from_ptr(ffi.new 'float[4]', { 4 }) }, { copy = true }))
    assert.is_false(box:take()[1].requires_grad)
  end)

  it('refuses a tensor that was written to since, unless a copy was put', function()
    local box = amp.mailbox(name(), { keep = 4 })
    local x = amp.zeros(3)
    box:put { x = x }
    box:put({ x = x }, { copy = true })
    x:add_(1)
    H.fails_here(function() box:take() end, 'tensor 1 of letter 1 was changed in place', 'copy = true')
    assert.equal(0, box:take().x:sum():item()) -- the first letter is gone, the second one is whole
    local net = amp.nn.Linear(2, 2)
    local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
    local before = net.weight:detach():clone()
    box:put(net:state_dict(), { copy = true })
    box:put(net:state_dict())
    net(amp.ones(1, 2)):sum():backward()
    opt:step()
    H.same(box:take().weight, before)
    H.fails(function() box:take() end, 'was changed in place')
  end)

  it('is opened by name, with one room for all', function()
    local n = name()
    local a = amp.mailbox(n)
    a:put 'one'
    local b = amp.mailbox(n, { keep = 2 })
    a:put 'two'
    assert.equal('one', (b:take()))
    H.fails_here(function() amp.mailbox(n, { keep = 5 }) end, 'keeps 2 letters', 'asked for 5')
    H.fails_here(function() amp.mailbox '' end, '1 to 63 bytes')
    H.fails_here(function() amp.mailbox(('x'):rep(64)) end, '1 to 63 bytes, got 64')
    H.fails_here(function() amp.mailbox 'a\0b' end, 'zero bytes')
    H.fails_here(function() amp.mailbox(7) end, 'a name expected')
    H.fails_here(function() amp.mailbox('box', { keep = 0 }) end, 'keep')
    H.fails_here(function() amp.mailbox('box', { keep = 1e9 }) end, 'keep')
    H.fails_here(function() amp.mailbox('box', { room = 1 }) end, 'keep')
  end)

  it('is not waited for after an interrupt', function()
    local core = require 'amp.ffi'
    core.C.amp_interrupt(core.S)
    local box = amp.mailbox(name())
    local e = H.fails(function() box:take(600) end, 'interrupted')
    assert.equal('interrupted', e.code)
    assert.is_nil(box:take(0.01))
  end)

  it('goes with the last who opened it', function()
    local n = name()
    amp.mailbox(n):put 'lost'
    collectgarbage()
    collectgarbage()
    assert.is_nil((amp.mailbox(n):take()))
  end)
end)

describe('two Lua states', function()
  it('hand tensors over, which outlive the state that made them', function()
    local n = name()
    local box = amp.mailbox(n, { keep = 4 })
    local other = new_state()
    box:put { x = amp.arange(0, 4), scale = 3 }
    assert.equal('1', other.run(([[
      box = amp.mailbox '%s'
      local letter, version = box:take()
      net = amp.nn.Linear(1, 1)
      box:put {y = letter.x * letter.scale, same = letter.x}
      box:put({weight = net.weight}, {copy = true})
      return tostring(version)]]):format(n)))
    other.close()
    collectgarbage()
    local letter = box:take()
    H.same(letter.y, amp.tensor { 0, 3, 6, 9 })
    letter.same:add_(1) -- nobody else has it any more
    assert.equal(1, box:take().weight:numel())
  end)

  it('say what is wrong in the state that asked', function()
    local n = name()
    local box = amp.mailbox(n, { keep = 2 })
    local other = new_state()
    local x = amp.ones(2)
    box:put(x)
    x:add_(1)
    H.fails(function() other.run(("amp.mailbox('%s'):take()"):format(n)) end, 'was changed in place')
    H.fails(function() other.run(("amp.mailbox('%s', {keep = 9})"):format(n)) end, 'keeps 2 letters')
    H.fails(function() other.run(("amp.mailbox('%s'):put(amp.nn.Linear(1, 1))"):format(n)) end, 'state_dict()')
    other.run(("amp.mailbox('%s'):put(amp.ones(1, {requires_grad = true}), {copy = true})"):format(n))
    assert.is_false(box:take().requires_grad)
    other.close()
  end)
end)

-- -- Threads ------------------------------------------------------------------------------------------

local luv = not os.getenv 'AMP_SPEC_SANITIZED' and pcall(require, 'luv') and require 'luv'

describe('threads', function()
  if not luv then return it('hand tensors over', function() pending 'NOT TRIED: luv is not installed (Debian: lua-luv), or sanitized' end) end

  it('hand tensors over, at once and in both directions', function()
    local there, back = amp.mailbox('spec there', { keep = 500 }), amp.mailbox('spec back', { keep = 500 })
    local function work(path, cpath)
      package.path, package.cpath = path, cpath
      local amp = require 'amp' -- luacheck: ignore 431
      local there, back = amp.mailbox 'spec there', amp.mailbox 'spec back' -- luacheck: ignore 431
      local weight = amp.ones(10)
      for i = 1, 200 do
        local letter = assert(there:take(60), 'no letter')
        weight:add_(letter.x)
        back:put({ weight = weight, i = i, seen = letter.i }, { copy = true })
      end
    end
    local thread = luv.new_thread(work, package.path, package.cpath)
    for i = 1, 200 do there:put { x = amp.full({ 10 }, 0.5), i = i } end
    for i = 1, 200 do
      local letter, version = back:take(60)
      assert.same({ i, i, i }, { letter.i, letter.seen, version })
      assert.equal(10 * (1 + i / 2), letter.weight:sum():item())
    end
    thread:join()
  end)
end)
