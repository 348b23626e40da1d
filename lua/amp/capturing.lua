--- The step that is being captured, for those who have to know: optimizers enter
-- themselves, so that a replay can send their hyper-parameters (amp.capture).
-- @module amp.capturing
return { current = nil } -- a list of optimizers while a step is captured
