std = 'luajit'
max_line_length = 160
codes = true
files['spec'] = { std = 'luajit+busted' }
-- the one module whose purpose is a global, and the command's interpreter
files['lua/amp/global.lua'] = { globals = { 'amp' } }
