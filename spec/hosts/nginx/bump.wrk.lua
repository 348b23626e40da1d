-- luacheck: globals wrk
wrk.method, wrk.body = 'POST', '[0.12, 0.5, 1.25, 0.75, 0.3, 0.21, 0.05, 0.9]'
