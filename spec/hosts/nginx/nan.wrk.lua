-- luacheck: globals wrk init request response setup done good nans others
-- Every third request is of NaN: its answer is, the others' are not.
local numbers, nan = ('\0\0\0\63'):rep(784), ('\0\0\192\127'):rep(784) -- float32
local requests, sent = {}, 0
good, nans, others = 0, 0, 0 -- globals, which `done` reads of each thread

function init()
  for i, body in ipairs { numbers, nan, numbers } do requests[i] = wrk.format('POST', nil, nil, body) end
end

function request()
  sent = sent + 1
  return requests[sent % 3 + 1]
end

function response(status, _, body)
  if status ~= 200 then others = others + 1
  elseif body:find 'nan' then nans = nans + 1
  else good = good + 1 end
end

local threads = {}
function setup(thread) threads[#threads + 1] = thread end

function done()
  local sum = { good = 0, nans = 0, others = 0 }
  for _, thread in ipairs(threads) do
    for name, n in pairs(sum) do sum[name] = n + thread:get(name) end
  end
  if math.abs(sum.good - 2 * sum.nans) > 130 then sum.others = sum.others + 1 end -- some are on their way at the end
  print(('good: %d, NaN: %d, wrong answers: %d'):format(sum.good, sum.nans, sum.others))
end
