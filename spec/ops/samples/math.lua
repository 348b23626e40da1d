--- Elementwise functions and activations: cases by hand (spec/ops/op_samples.lua says how one is written), wrong calls.
return {
  by_hand = {
  },
  wrong = {
    polygamma = { { { { 2 } }, { n = -1 }, { 'n is -1' } } },
    celu = { { { { 2 } }, { alpha = 0 }, { 'alpha' } } },
    hardtanh = { { { { 2 } }, { min_val = 2, max_val = 1 }, { 'min_val 2', 'max_val 1' } } },
    hardshrink = { { { { 2 } }, { lambd = -1 }, { 'lambd', '-1' } } },
    softshrink = { { { { 2 } }, { lambd = -1 }, { 'lambd', '-1' } } },
    logit = { { { { 2 } }, { eps = 0.75 }, { 'eps', '0.75' } } },
    glu = { { { { 2, 3 } }, {}, { '3', 'halved' } }, { { {} }, {}, { 'scalar' } } },
    softmin = { { { { 2, 3 } }, { dim = 3 }, { '3' } } },
    prelu = { { { { 2, 3 }, { 2 } }, {}, { '2', '3' } }, { { { 2, 3 }, { 3, 1 } }, {}, { '3x1' } },
      { { { 2, 3 }, { dtype = 'float64', 3 } }, {}, { 'float32', 'float64' } } },
    isclose = { { { { 2 }, { 3 } }, {}, { '2', '3' } }, { { { 2 }, { 2 } }, { rtol = -1 }, { 'rtol', '-1' } } },
    fmod = { { { { dtype = 'int64', fill = 3, 2 }, { dtype = 'int64', fill = 0, 2 } }, {}, { 'zero' } }, { { { 2 }, { 3 } }, {}, { '2', '3' } } },
    floor_divide = { { { { dtype = 'int64', fill = 3, 2 }, { dtype = 'int64', fill = 0, 2 } }, {}, { 'zero' } }, { { { 2 }, { 3 } }, {}, { '2', '3' } } },
    bitwise_and = { { { { 2 }, { 2 } }, {}, { 'float32' } }, { { { dtype = 'int64', 2 }, 0.5 }, {}, { 'float64' } } },
    bitwise_or = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
    bitwise_xor = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
    bitwise_not = { { { { 2 } }, {}, { 'float32' } } },
    bitwise_left_shift = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
    bitwise_right_shift = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
  },
}
