--- Programs in C against an installed amp: by pkg-config, by CMake's package; with Lua inside and without.
-- The header compiles as C and as C++; what it exports and how its structs lie is kept in fixtures/abi.txt.
local H = require 'spec.lib.helper'
local ffi = require 'ffi'
local C = require('amp.ffi').C

local root = H.absolute(H.root)
local prefix = H.tmp 'prefix'
local sanitized = os.getenv 'AMP_SPEC_SANITIZED'

local function has(tool) return os.execute('command -v ' .. tool .. ' >/dev/null 2>&1') == 0 end
local cc = has 'cc' and has 'pkg-config'

local installed
local function install()
  if sanitized then return false end
  if installed == nil then
    local out, status = H.sh(("cmake --install '%s' --prefix '%s'"):format(H.absolute(H.build), prefix))
    installed = status == 0
    if not installed then error(out) end
  end
  return installed
end

-- Where the installed files lie: LIBDIR differs between systems
local function find(name)
  local path = H.sh(("find '%s' -name '%s'"):format(prefix, name)):match '[^\n]+'
  return assert(path, name .. ' is not installed'):match '^(.*)/[^/]*$'
end

local function with_pc(command) return H.sh(("cd '%s' && export PKG_CONFIG_PATH='%s' && %s"):format(root, find 'amp.pc', command)) end

-- Compile by pkg-config; extra: further packages and flags
local function compile(source, binary, extra)
  return with_pc(("cc -std=gnu11 -Wall -Wextra -Werror -O1 '%s' $(pkg-config --cflags --libs amp %s) -pthread -lm -o '%s'")
    :format(source, extra or '', H.tmp(binary)))
end

-- Run with Lua's paths set to the installed tree
local function run(binary)
  return H.sh(("cd / && env -u AMP_LIBRARY LUA_PATH='%s/?.lua;%s/?/init.lua;;' LUA_CPATH='%s/?.so;;' '%s'")
    :format(find 'global.lua' .. '/..', find 'global.lua' .. '/..', find 'libamp.so' .. '/..', binary))
end

describe('a C program of the examples, built against the installed amp by pkg-config,', function()
  local function example(name, packages, check)
    it(name .. '.c runs', function()
      if not cc then return pending 'no cc or no pkg-config here' end
      if packages ~= '' and H.sh('pkg-config --exists ' .. packages .. ' || echo no'):find 'no' then return pending(packages .. ' is not installed here') end
      if not install() then return pending 'once is enough' end
      local out, status = compile('examples/embed/' .. name .. '.c', name, packages)
      assert.equal(0, status, out)
      out, status = run(H.tmp(name))
      assert.equal(0, status, out)
      check(out)
    end)
  end
  example('linear', '', function(out)
    assert.is_not_nil(out:find('w 1.00 -2.00 0.50 3.00, b 0.25', 1, true), out)
    assert.is_true(tonumber(out:match '(%d+) steps skipped') >= 1, 'the first scale overflows: ' .. out)
  end)
  local graph = H.tmp 'digits.safetensors'
  local function trained() -- a short run of the quickstart, and pictures of the test set
    local there = io.open(graph)
    if there then return there:close() end
    local out, status = H.sh(("cd '%s' && LUA_PATH='lua/?.lua;lua/?/init.lua;;' AMP_LIBRARY='%s/amp/libamp.so' luajit %s --graph '%s'")
      :format(root, H.absolute(H.build), 'examples/quickstart.lua --quiet --epochs 1 --precision float32', graph))
    assert.equal(0, status, out)
  end
  local function classifies(program)
    local amp = require 'amp'
    local digits = amp.data.mnist(root .. '/examples/data').test
    local g = amp.load_graph(graph)
    local right = 0
    for i = 1, 5 do
      local x, y = digits:get(i)
      local bytes = {}
      for k, v in ipairs((x * 255):reshape(-1):tolist()) do bytes[k] = string.char(math.floor(v + 0.5)) end
      H.write(H.tmp 'digit.pgm', 'P5\n28 28\n255\n' .. table.concat(bytes))
      local out, status = H.sh(("cd / && env -i OMP_NUM_THREADS=1 '%s' '%s' '%s'"):format(program, graph, H.tmp 'digit.pgm'))
      assert.equal(0, status, out)
      local _, best = g(x:reshape(1, 1, 28, 28)):max(2)
      assert.equal(best:item() - 1, tonumber(out:match 'it is a (%d)'))
      right = right + (tonumber(out:match 'it is a (%d)') == y:item() - 1 and 1 or 0)
    end
    assert.is_true(right >= 4, right .. ' of 5 are right')
    local out, status = H.sh(("env -i '%s' '%s'"):format(program, graph))
    assert.equal(0, status, out)
    assert.is_truthy(out:find 'it is a 7', out)
    out, status = H.sh(("env -i '%s' /nowhere 2>&1"):format(program))
    assert.equal(1, status)
    assert.is_truthy(out:find('load_graph: \'/nowhere\'', 1, true), out)
  end
  it('run_graph.c tells the digit that the network of the quickstart sees', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if not install() then return pending 'once is enough' end
    trained()
    local out, status = compile('examples/embed/run_graph.c', 'run_graph')
    assert.equal(0, status, out)
    classifies(H.tmp 'run_graph')
  end)
  it('run_graph.c does so with amp inside itself', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if not install() then return pending 'once is enough' end
    trained()
    local build = H.absolute(H.build)
    local out, status = H.sh(("cmake --build '%s' --target amp_static && cmake --install '%s' --prefix '%s'"):format(build, build, prefix))
    assert.equal(0, status, out)
    out, status = with_pc(("cc -std=gnu11 -Wall -Wextra -Werror -O1 examples/embed/run_graph.c $(pkg-config --cflags --libs amp-static) -o '%s'")
      :format(H.tmp 'run_static'))
    assert.equal(0, status, out)
    assert.is_nil(H.sh(("ldd '%s'"):format(H.tmp 'run_static')):find 'libamp')
    classifies(H.tmp 'run_static')
  end)
  example('embed', 'luajit', function(out)
    assert.is_true(math.abs(tonumber(out:match 'weight ([%d.]+)') - 3) < 0.05, out)
  end)
  example('two_states', 'luajit', function(out)
    assert.is_not_nil(out:find('float16: weight 2.0', 1, true), out)
    assert.is_not_nil(out:find('bfloat16: weight ', 1, true), out)
  end)
  it('says what went wrong in Lua, at the line of the script', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if H.sh('pkg-config --exists luajit || echo no'):find 'no' then return pending 'luajit is not installed here' end
    if not install() then return pending 'once is enough' end
    local text, n = H.read(H.root .. '/examples/embed/embed.c'):gsub('3 %* x%)', 'amp.ones(5, 7))')
    assert.equal(1, n)
    H.write(H.tmp 'failing.c', text)
    local out, status = compile(H.tmp 'failing.c', 'failing', 'luajit')
    assert.equal(0, status, out)
    out, status = run(H.tmp 'failing')
    assert.equal(1, status)
    assert.is_not_nil(out:find ':6: amp%.mse_loss: .*5x7', out)
  end)
  it('shares its own library with Lua, also where Lua would find another copy', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if H.sh('pkg-config --exists luajit || echo no'):find 'no' then return pending 'luajit is not installed here' end
    if not install() then return pending 'once is enough' end
    local text, n = H.read(H.root .. '/examples/embed/embed.c'):gsub('"return net%.weight\\n"', '"print((select(3, amp.version()))) return net.weight\\n"')
    assert.equal(1, n)
    H.write(H.tmp 'shared.c', text)
    local out, status = compile(H.tmp 'shared.c', 'shared', 'luajit')
    assert.equal(0, status, out)
    os.execute(("rm -rf '%s' && cp -r '%s' '%s'"):format(H.tmp 'second', prefix, H.tmp 'second'))
    local lua, library = find 'global.lua', find 'libamp.so'
    local function second(path) return H.tmp 'second' .. path:sub(#prefix + 1) .. '/..' end
    out, status = H.sh(("cd / && env -u AMP_LIBRARY LUA_PATH='%s/?.lua;%s/?/init.lua;;' LUA_CPATH='%s/?.so;;' '%s'")
      :format(second(lua), second(lua), second(library), H.tmp 'shared'))
    assert.equal(0, status, out)
    assert.is_true(out:find(prefix, 1, true) ~= nil, out)
    assert.is_nil(out:find(H.tmp 'second', 1, true), out)
    assert.is_not_nil(out:find 'weight 3%.0', out)
  end)
  it('is told what is wrong by the state, and goes on', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if not install() then return pending 'once is enough' end
    H.write(H.tmp 'wrong.c', [[
#include <stdio.h>
#include <amp.h>
int main(void)
{
  amp_state *S = amp_state_new();
  const int64_t two[] = { 2 }, three[] = { 3 };
  const double v[] = { 1, 2, 3 };
  amp_ref a = { NULL }, b = { NULL }, c = { NULL };
  if (amp_from_double(S, &a, v, 1, two, AMP_FLOAT32) || amp_from_double(S, &b, v, 1, three, AMP_FLOAT32)) return 1;
  if (amp_op2(S, AMP_OP_add, &c, &a, &b) != AMP_E_SHAPE) return 2;
  printf("%s: %s\n", S->err.op, S->err.message);
  if (amp_op1(S, 100000, &c, &a) >= 0 || amp_op2(S, AMP_OP_add, &c, &a, &c) >= 0) return 3;
  if (amp_op2(S, AMP_OP_add, &c, &a, &a) < 0) return 4;
  amp_release(&a); amp_release(&b); amp_release(&c); amp_release(&c);
  amp_state_free(S); amp_scaler_free(NULL); amp_optim_free(NULL); amp_check_free(NULL); amp_state_free(NULL);
  return 0;
}]])
    local out, status = compile(H.tmp 'wrong.c', 'wrong')
    assert.equal(0, status, out)
    out, status = run(H.tmp 'wrong')
    assert.equal(0, status, out)
    assert.is_not_nil(out:find 'add: .*2.*3', out)
  end)
  it('may be C++', function()
    local compiler = has 'c++' and 'c++' or has 'g++' and 'g++' or has 'clang++' and 'clang++'
    if not (cc and compiler) then return pending 'no C++ compiler or no pkg-config here' end
    if not install() then return pending 'once is enough' end
    H.write(H.tmp 'program.cc', [[
#include <amp.h>
int main()
{
  amp_state *S = amp_state_new();
  const double v[] = {1, 2, 3, 4};
  const int64_t size[] = {2, 2};
  amp_ref a = {nullptr}, b = {nullptr}, sum = {nullptr};
  double got = 0;
  int rc = amp_from_double(S, &a, v, 2, size, AMP_BFLOAT16);
  if (rc == 0) rc = amp_op2(S, AMP_OP_matmul, &b, &a, &a);
  if (rc == 0) rc = amp_op1(S, AMP_OP_sum, &sum, &b);
  if (rc == 0) rc = amp_item(S, &sum, &got);
  amp_release(&a); amp_release(&b); amp_release(&sum);
  amp_state_free(S);
  return rc == 0 && got == 54 ? 0 : 1;
}]])
    local out, status = with_pc(("%s -std=c++17 -Wall -Wextra -pedantic '%s' $(pkg-config --cflags --libs amp) -o '%s' && '%s'")
      :format(compiler, H.tmp 'program.cc', H.tmp 'cxx', H.tmp 'cxx'))
    assert.equal(0, status, out)
  end)
  it('finds the version it was compiled with', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if not install() then return pending 'once is enough' end
    assert.equal(ffi.string(C.amp_version()), (with_pc 'pkg-config --modversion amp':match '%S+'))
  end)
  it('of the manual does what the manual says', function()
    if not cc then return pending 'no cc or no pkg-config here' end
    if not install() then return pending 'once is enough' end
    local page = H.read(H.root .. '/examples/guide/c_api.md')
    local check, attributes = page:match '```c\n(if %(strcmp[^`]*)```', page:match '```c\n(amp_slot attrs[^`]*)```'
    H.write(H.tmp 'manual.c', ([[
#include <stdio.h>
#include <string.h>
#include <amp.h>
int main(void)
{
  %s
  amp_state *S = amp_state_new();
  const int64_t size[] = { 2, 3 };
  const double v[] = { 1, 2, 3, 4, 5, 6 };
  double sums[2];
  amp_ref x = { NULL }, out = { NULL };
  if (amp_from_double(S, &x, v, 2, size, AMP_FLOAT32)) return 2;
  %s
  if (amp_read(S, &out, sums, 2) || out.t->ndim != 2 || out.t->size[1] != 1 || sums[0] != 6 || sums[1] != 15) return 3;
  amp_release(&x); amp_release(&out); amp_state_free(S);
  return 0;
}]]):format(assert(check), assert(attributes)))
    local out, status = compile(H.tmp 'manual.c', 'manual')
    assert.equal(0, status, out)
    out, status = run(H.tmp 'manual')
    assert.equal(0, status, out)
  end)
end)

describe('the package for CMake', function()
  it('builds the examples', function()
    if sanitized then return pending 'once is enough' end
    install()
    local out, status = H.sh(("cmake -S '%s/examples/embed' -B '%s' -DCMAKE_PREFIX_PATH='%s' && cmake --build '%s'")
      :format(root, H.tmp 'cmake', prefix, H.tmp 'cmake'))
    assert.equal(0, status, out)
    out, status = run(H.tmp 'cmake/linear')
    assert.equal(0, status, out)
  end)
  it('is not taken for another version, and says so where a file is missing', function()
    if sanitized then return pending 'once is enough' end
    install()
    os.execute(("mkdir -p '%s' && cp -r '%s' '%s'"):format(H.tmp 'other', prefix, H.tmp 'broken'))
    H.write(H.tmp 'other/CMakeLists.txt', 'cmake_minimum_required(VERSION 3.18)\nproject(x LANGUAGES C)\nfind_package(amp ${WANT} REQUIRED)\n')
    local function configure(want, where)
      return H.sh(("cmake -S '%s' -B '%s/b' -DWANT=%s -Damp_DIR= -DCMAKE_PREFIX_PATH='%s'"):format(H.tmp 'other', H.tmp 'other', want, where))
    end
    for want, fits in pairs { ['0.2'] = true, ['0.2.0'] = true, ['0.1'] = false, ['0.3'] = false, ['0.2.9'] = false, ['1'] = false } do
      local out, status = configure(want, prefix)
      assert.equal(fits, status == 0, want .. '\n' .. out)
    end
    H.sh(("find '%s' -name libamp.so -delete"):format(H.tmp 'broken'))
    local out, status = configure('0.2', H.tmp 'broken')
    assert.are_not.equal(0, status)
    assert.is_not_nil(out:find 'libamp%.so%s+is%s+missing', out)
  end)
end)

describe('amp.h', function()
  H.write(H.tmp 'plain.c', '#include "amp.h"\nint main(void) { amp_ref r = { 0 }; return r.t != 0 || AMP_OP_COUNT < 1; }\n')
  os.execute(("cp '%s' '%s'"):format(H.tmp 'plain.c', H.tmp 'plain.cc'))
  local function compiles(command, file)
    local out, status = H.sh(("%s -pedantic -Wall -Wextra -Werror -I'%s/src' -c '%s' -o /dev/null"):format(command, root, H.tmp(file)))
    assert.equal(0, status, out)
  end
  it('compiles as C11 and C17', function()
    if not has 'cc' then return pending 'no cc here' end
    compiles('cc -std=c11', 'plain.c')
    compiles('cc -std=c17', 'plain.c')
  end)
  it('compiles as C++', function()
    local compiler = has 'c++' and 'c++' or has 'g++' and 'g++' or has 'clang++' and 'clang++'
    if not compiler then return pending 'no C++ compiler here' end
    compiles(compiler .. ' -std=c++11', 'plain.cc')
    compiles(compiler .. ' -std=c++20', 'plain.cc')
  end)
end)

-- -- The ABI ------------------------------------------------------------------------------------

-- Lines of what a program compiled earlier relies on: symbols, sizes of structs, places of fields, values of enums.
local function abi()
  local lines = { 'abi ' .. tonumber(C.AMP_ABI) }
  local cdef = ffi.string(C.amp_cdef())
  for name in cdef:gmatch '[^;{}]-%f[%w_](amp_[%w_]+)%s*%(' do lines[#lines + 1] = 'symbol ' .. name end
  for kind, body, name in cdef:gmatch 'typedef (%a+) [%w_]* ?(%b{})%s*([%w_]+);' do
    lines[#lines + 1] = ('%s %s %d'):format(kind, name, ffi.sizeof(name))
    for part in body:sub(2, -2):gmatch '[^;]+' do
      for field in part:gsub('%b[]', ''):gmatch '([%w_]+)%s*%f[,%z]' do
        lines[#lines + 1] = ('field %s.%s %d'):format(name, field, (ffi.offsetof(name, field)))
      end
    end
  end
  for body in cdef:gmatch 'enum [%w_]* ?(%b{})' do
    for name in body:gmatch '%f[%w_](AMP_[%w_]+)' do lines[#lines + 1] = ('value %s %d'):format(name, tonumber(C[name])) end
  end
  table.sort(lines)
  return table.concat(lines, '\n') .. '\n'
end

describe('the ABI', function()
  it('is the one of fixtures/abi.txt: no symbol goes, none comes unlisted, nothing moves', function()
    local now, path = abi(), H.root .. '/spec/fixtures/abi.txt'
    if os.getenv 'AMP_WRITE_ABI' == '1' then H.write(path, now) end
    local was = H.read(path)
    if now == was then return end
    local listed, here, text = {}, {}, {}
    for line in was:gmatch '[^\n]+' do listed[line] = true end
    for line in now:gmatch '[^\n]+' do
      here[line] = true
      -- new values and new structs do no harm; one that moved shows below as a line that went
      if not listed[line] and line:find '^symbol' then text[#text + 1] = '+ ' .. line end
    end
    for line in was:gmatch '[^\n]+' do
      if not here[line] then text[#text + 1] = '- ' .. line end
    end
    if #text == 0 then return end
    error('the ABI has changed. What is only added may stay under the same number; else raise AMP_ABI in amp.h and ABI in lua/amp/ffi.lua.\n'
      .. 'Then write the list anew: AMP_WRITE_ABI=1 luajit spec/run.lua spec/unit/embed_spec.lua\n' .. table.concat(text, '\n'))
  end)
  it('has all that is listed in the library, and nothing else with its prefix', function()
    if not has 'nm' then return pending 'no nm here' end
    if sanitized then return pending 'once is enough' end
    local exported = {}
    for name in H.sh(("nm -D --defined-only '%s/amp/libamp.so'"):format(H.absolute(H.build))):gmatch '%x+ [TDBRVW] (%S+)' do exported[name] = true end
    local listed = {}
    for name in H.read(H.root .. '/spec/fixtures/abi.txt'):gmatch 'symbol (%S+)' do
      listed[name] = true
      assert.is_true(exported[name] == true, 'the library does not export ' .. name)
    end
    for name in pairs(exported) do
      if name:find '^amp_' and not name:find '%.resolver$' and not name:find '^amp__' then
        assert.is_true(listed[name] == true, name .. ' is exported, but amp.h does not declare it')
      end
    end
  end)
end)

describe('a tensor of C', function()
  it('comes into Lua by the address of its handle', function()
    local amp = require 'amp'
    local t = H.make({ 1, 2 }, { 2 })
    local p = ffi.new('amp_ref[1]')
    C.amp_retain(p, t)
    local mine = amp.from_ref(ffi.cast('void *', p))
    assert.equal(t:id(), mine:id())
    C.amp_release(p)
    mine:add_(1)
    H.close(t, { 2, 3 })
  end)
  it('that is none, or none any more, is an error', function()
    local amp = require 'amp'
    local empty = ffi.new('amp_ref[1]')
    H.fails_here(function() amp.from_ref(empty) end, 'from_ref', 'empty')
    H.fails_here(function() amp.from_ref('x') end, 'from_ref', "'x'", 'address of an amp_ref')
    H.fails_here(function() amp.from_ref() end, 'nil')
    H.fails_here(function() amp.from_ref({}) end, 'a table')
  end)
end)
