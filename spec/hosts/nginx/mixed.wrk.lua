-- luacheck: globals wrk init request response setup done good refused others
-- Every third request is a wrong one: that gets 400, the others 200.
local file = assert(io.open '/srv/digit')
local picture, requests, sent = file:read '*a', {}, 0
good, refused, others = 0, 0, 0 -- globals, which `done` reads of each thread

function init()
  for i, body in ipairs { picture, '[1, 2]', picture } do requests[i] = wrk.format('POST', nil, nil, body) end
end

function request()
  sent = sent + 1
  return requests[sent % 3 + 1]
end

function response(status)
  if status == 200 then good = good + 1
  elseif status == 400 then refused = refused + 1
  else others = others + 1 end
end

local threads = {}
function setup(thread) threads[#threads + 1] = thread end

function done()
  local sum = { good = 0, refused = 0, others = 0 }
  for _, thread in ipairs(threads) do
    for name, n in pairs(sum) do sum[name] = n + thread:get(name) end
  end
  if math.abs(sum.good - 2 * sum.refused) > 130 then sum.others = sum.others + 1 end -- some are on their way at the end
  print(('good: %d, refused: %d, wrong answers: %d'):format(sum.good, sum.refused, sum.others))
end
