--- Who wants to know that the caller has just waited for a device, so that what it found can be read without a wait:
-- `item`, `tolist` and `amp.cuda.synchronize` call `look` while something is `pending` (amp/precision/scaler_state.lua).
-- @module amp.core.waits
return { pending = false, look = nil }
