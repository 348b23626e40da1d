-- luacheck: globals wrk
local file = assert(io.open '/srv/digit')
wrk.method, wrk.body = 'POST', file:read '*a'
