--- Names in `amp` that may be missing: `amp.x` raises for one that is not there, `find 'x'` gives nil.
-- amp.lua sets `find` when it is loaded; parts of amp that it loads itself can't require it.
-- @module amp.core.lookup
return {}
