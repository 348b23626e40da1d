rockspec_format = "3.0"
package = "amp"
version = "0.1.0-1"

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
  },
  install = {
    bin = {
      amp = "lua/bin/amp",
    },
  },
}

deploy = {
  wrap_bin_scripts = false,
}

test = {
  type = "command",
  command = "sh spec/run.sh",
}
