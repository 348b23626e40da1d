--- A line search for the strong Wolfe conditions, with cubic interpolation (Nocedal and
-- Wright, Numerical Optimization, algorithms 3.5 and 3.6), as LBFGS uses it.
-- @module amp.optim.line_search
local abs, min, max, sqrt = math.abs, math.min, math.max, math.sqrt

local M = {}

--- Lowest point of the cubic through two points {t =, f =, slope =}, held within low..high: between them where those are nil.
function M.cubic(a, b, low, high)
  low, high = low or min(a.t, b.t), high or max(a.t, b.t)
  local d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
  local square = d1 * d1 - a.slope * b.slope
  if square < 0 or square ~= square then return (low + high) / 2 end
  local d2 = sqrt(square)
  if a.t > b.t then a, b = b, a end
  local at = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
  if at ~= at then return (low + high) / 2 end
  return min(max(at, low), high)
end
local cubic = M.cubic

--- Find a step that decreases a function enough and flattens its slope.
-- @tparam function evaluate t -> {t, f, g, slope}: value, gradient (a tensor of its own) and slope there
-- @tparam number t first step to try
-- @tparam table start the same record at 0
-- @tparam number reach largest component of the direction
-- @tparam ?table options c1 (1e-4), c2 (0.9), tolerance (1e-9): of the bracket's width times the reach, or times the last slope where
-- reach is nil, most (25): evaluations after the first
-- @treturn table the record of the step that was found
-- @treturn number how often evaluate was called
function M.strong_wolfe(evaluate, t, start, reach, options)
  local o = options or {}
  local c1, c2, tolerance, most = o.c1 or 1e-4, o.c2 or 0.9, o.tolerance or 1e-9, o.most or 25
  local calls, tries = 1, 0
  local prev, new = start, evaluate(t)
  local lo, hi -- the bracket, in the order in which it was found
  local function low_enough(p) return p.f <= start.f + c1 * p.t * start.slope end
  while tries < most do
    if not low_enough(new) or (tries > 1 and new.f >= prev.f) then
      lo, hi = prev, new
      break
    end
    if abs(new.slope) <= -c2 * start.slope then return new, calls end
    if new.slope >= 0 then
      lo, hi = prev, new
      break
    end
    t = cubic(prev, new, new.t + 0.01 * (new.t - prev.t), new.t * 10)
    prev, new = new, evaluate(t)
    calls, tries = calls + 1, tries + 1
  end
  if tries == most then lo, hi = start, new end
  -- zoom: points stay in their places of the bracket, `low` is the better of the two
  local stuck, points = false, { lo, hi }
  local low = points[1].f <= points[2].f and 1 or 2
  while tries < most do
    local from, to = min(points[1].t, points[2].t), max(points[1].t, points[2].t)
    if (to - from) * (reach or abs(new.slope)) < tolerance then break end
    t = cubic(points[1], points[2])
    local eps = 0.1 * (to - from)
    if min(to - t, t - from) < eps then
      if stuck or t >= to or t <= from then
        t = abs(t - to) < abs(t - from) and to - eps or from + eps
        stuck = false
      else
        stuck = true
      end
    else
      stuck = false
    end
    new = evaluate(t)
    calls, tries = calls + 1, tries + 1
    if not low_enough(new) or new.f >= points[low].f then
      points[3 - low] = new
      low = points[1].f <= points[2].f and 1 or 2
    else
      local done = abs(new.slope) <= -c2 * start.slope
      if not done and new.slope * (points[3 - low].t - points[low].t) >= 0 then points[3 - low] = points[low] end
      points[low] = new
      if done then break end
    end
  end
  return points[low], calls
end

return M
