--- The step that is being captured, for those who have to know: optimizers enter
-- themselves, so that a replay can send their hyper-parameters (amp.capture), {opt, rescale, undecayed};
-- others a function that is called before each replay, {refresh}; in the calls before, scalers, whose
-- cells then keep their places.
-- @module amp.capture.current
return {
  current = nil, -- a list of such entries while a step is captured
  scalers = nil, -- a set of scalers while one runs that will be
}
