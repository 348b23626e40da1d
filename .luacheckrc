std = 'luajit'
max_line_length = 160
codes = true
exclude_files = { 'examples/guide/amp.meta.lua' } -- a stub for editors, all declarations
files['spec'] = { std = 'luajit+busted' }
-- tables whose rows are worth a line each
files['spec/ops/op_samples.lua'] = { max_line_length = false }
files['spec/ops/samples'] = { max_line_length = false }
files['spec/fixtures'] = { max_line_length = false }
files['spec/run.lua'] = { globals = { 'arg' } }
-- the one module whose purpose is a global, and the command's interpreter
files['lua/amp/global.lua'] = { globals = { 'amp' } }
