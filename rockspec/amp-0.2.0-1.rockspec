rockspec_format = "3.0"
package = "amp"
version = "0.2.0-1"

source = {
  url = "git+file://.",
}

description = {
  summary = "Mixed-precision deep learning for LuaJIT",
  detailed = [[
Tensors, autograd, autocast and gradient scaling in C, driven from LuaJIT
through the FFI, with nn, optim, data and io in Lua on top.]],
  license = "MIT",
  labels = {"machine-learning", "tensor", "autograd", "luajit"},
}

dependencies = {
  "lua == 5.1",
}

build = {
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    CMAKE_INSTALL_PREFIX = "$(PREFIX)",
    LIBDIR = "$(LIBDIR)",
    LUADIR = "$(LUADIR)",
    AMP_LUAROCKS = "ON",
    -- luarocks make ... AMP_CUDA=OFF; not given, they are empty, which is AUTO (LuaRocks warns of it)
    AMP_CUDA = "$(AMP_CUDA)",
    AMP_ONEDNN = "$(AMP_ONEDNN)",
    AMP_LAPACK = "$(AMP_LAPACK)",
    AMP_MPI = "$(AMP_MPI)",
  },
  install = {
    bin = {
      amp = "lua/bin/amp",
    },
  },
  -- the manual, the editors' stub and programs to start from, in the rock's own folder
  copy_directories = {"examples"},
}

deploy = {
  wrap_bin_scripts = false,
}

test = {
  type = "command",
  command = "sh spec/run.sh",
}
