--- Losses: cases by hand (spec/ops/op_samples.lua says how one is written), wrong calls, and arguments that are not
-- differentiated.
local wrong, constant = {}, {}
local by_hand = {
}

local function int(fill, ...) return { dtype = 'int64', fill = fill, ... } end

for _, op in ipairs { 'l1_loss', 'smooth_l1_loss', 'huber_loss', 'kl_div', 'soft_margin_loss', 'hinge_embedding_loss', 'poisson_nll_loss' } do
  wrong[op] = {
    { { { 2, 3 }, { 4, 5 } }, {}, { '2x3', '4x5' } },
    { { { 2, 3 }, { dtype = 'float64', 2, 3 } }, {}, { 'float32', 'float64' } },
    { { { 2, 3 }, { 2, 3 } }, { reduction = 'average' }, { 'reduction', 'average' } },
  }
end
local function also(op, call) table.insert(wrong[op], call) end
also('smooth_l1_loss', { { { 2 }, { 2 } }, { beta = -1 }, { 'beta', '-1' } })
also('huber_loss', { { { 2 }, { 2 } }, { delta = 0 }, { 'delta', '0' } })
also('kl_div', { { {}, {} }, { reduction = 'batchmean' }, { 'batchmean', 'scalar' } })

wrong.binary_cross_entropy = {
  { { { fill = 0.5, 2, 3 }, { fill = 0.5, 4, 5 }, false }, {}, { '2x3', '4x5' } },
  { { { fill = 1.5, 2, 3 }, { fill = 0.5, 2, 3 }, false }, {}, { '1.5', '0..1', 'bce_with_logits' } },
}
wrong.gaussian_nll_loss = {
  { { { 2, 3 }, { 4, 5 }, { 2, 3 } }, {}, { '2x3', '4x5' } },
  { { { 2, 3 }, { 2, 3 }, { 3 } }, {}, { 'var', '3', '2x3' } },
  { { { 2, 3 }, { 2, 3 }, { fill = -0.5, 2, 3 } }, {}, { 'var', '-0.5' } },
  { { { 2, 3 }, { 2, 3 }, -2 }, {}, { 'var', '-2' } },
  { { { 2, 3 }, { 2, 3 }, { 2, 3 } }, { eps = 0 }, { 'eps', '0' } },
}
wrong.cosine_embedding_loss = {
  { { { 2, 3 }, { 2, 4 }, { 2 } }, {}, { '2x3', '2x4' } },
  { { { 2, 3 }, { 2, 3 }, { 3 } }, {}, { 'target', '3', '2x3' } },
  { { { 2, 3 }, { dtype = 'float64', 2, 3 }, { 2 } }, {}, { 'float32', 'float64' } },
}
wrong.margin_ranking_loss = {
  { { { 2, 3 }, { 4, 5 }, { 2, 3 } }, {}, { '2x3', '4x5' } },
  { { { 2, 3 }, { 2, 3 }, { 3 } }, {}, { '2x3', '3' } },
}
wrong.multilabel_soft_margin_loss = {
  { { { 2, 3 }, { 4, 5 }, false }, {}, { '2x3', '4x5' } },
  { { { 2, 3 }, { 2, 3 }, { 4 } }, {}, { '4', '3' } },
}
wrong.multi_margin_loss = {
  { { { 2, 3 }, int(4, 2), false }, {}, { 'label', '4', 'row 1', '1..3' } },
  { { { 2, 3 }, int(0, 2), false }, {}, { 'label', '0' } },
  { { { 2, 3 }, int(1, 4), false }, {}, { '2x3', '4' } },
  { { { 2, 3 }, { 2 }, false }, {}, { 'target', 'float32' } },
  { { { 2, 3 }, int(1, 2), false }, { p = 3 }, { 'p', '3' } },
  { { { 2, 3 }, int(1, 2), { 2 } }, {}, { 'weight', '2', '3' } },
  { { { 2, 3, 1 }, int(1, 2, 1), false }, {}, { '2x3x1' } },
}
wrong.multilabel_margin_loss = {
  { { { 2, 3 }, int(4, 2, 3) }, {}, { 'label', '4', 'row 1', '1..3' } },
  { { { 2, 3 }, int(1, 2) }, {}, { '2x3', '2' } },
  { { { 2, 3 }, { 2, 3 } }, {}, { 'float32' } },
  { { { 2, 3, 4 }, int(1, 2, 3, 4) }, {}, { '2x3x4' } },
}
wrong.triplet_margin_loss = {
  { { { 2, 3 }, { 4, 3 }, { 2, 3 } }, {}, { '2x3', '4x3' } },
  { { { 2, 3 }, { 2, 3 }, { 3 } }, {}, { '2x3', '3' } },
  { { { 2, 3 }, { 2, 3 }, { 2, 3 } }, { p = 0 }, { 'p', '0' } },
  { { { 2, 3 }, { 2, 3 }, { 2, 3 } }, { margin = -1 }, { 'margin', '-1' } },
}
wrong.ctc_loss = {
  { { { 5, 2, 3 }, int(4, 2, 2), int(5, 2), int(2, 2) }, {}, { 'label 4', 'row 1', '1..3' } },
  { { { 5, 2, 3 }, int(1, 2, 2), int(5, 2), int(2, 2) }, {}, { 'label 1', 'blank' } },
  { { { 5, 2, 3 }, int(2, 2, 2), int(6, 2), int(2, 2) }, {}, { 'input_lengths', '6', '5x2x3' } },
  { { { 5, 2, 3 }, int(2, 2, 2), int(5, 2), int(3, 2) }, {}, { 'target_lengths', '3', '2x2' } },
  { { { 5, 2, 3 }, int(2, 2, 2), int(5, 2), int(-1, 2) }, {}, { 'target_lengths', '-1' } },
  { { { 5, 2, 3 }, int(2, 5), int(5, 2), int(2, 2) }, {}, { 'target_lengths', '4', '5' } },
  { { { 5, 2, 3 }, int(2, 3, 2), int(5, 2), int(2, 2) }, {}, { 'targets', '3x2', '5x2x3' } },
  { { { 5, 2, 3 }, int(2, 2, 2), int(5, 3), int(2, 2) }, {}, { 'input_lengths', '3', '2' } },
  { { { 5, 2, 3 }, int(2, 2, 2), int(5, 2), int(2, 2) }, { blank = 4 }, { 'blank', '4', '1..3' } },
  { { { 5, 2, 3 }, { 2, 2 }, int(5, 2), int(2, 2) }, {}, { 'targets', 'float32' } },
  { { { 5 }, int(2, 2), int(5, 1), int(2, 1) }, {}, { '5' } },
}

constant.hinge_embedding_loss = { target = true }
constant.cosine_embedding_loss = { target = true }
constant.multi_margin_loss = { weight = true }

return { by_hand = by_hand, wrong = wrong, constant = constant }
