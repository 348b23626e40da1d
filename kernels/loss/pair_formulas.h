/*
** pair_formulas.h: the losses of pair_loss.cu, a line a kind: the loss f(x, t) and its slope in x. d is x - t, a is
** |d|, p the row's parameter (beta, delta, margin, eps). Included with PAIR(kind, loss, slope) defined; every kind of
** the op table must be here (pair_loss.cu counts them).
*/
/* clang-format off */
PAIR(KIND_L1, a, sign_of(d))
PAIR(KIND_SMOOTH_L1, a < p ? d / p * (d / 2) : a - p / 2, a < p ? d / p : sign_of(d))
PAIR(KIND_HUBER, a > p ? p * (a - p / 2) : d * (d / 2), d > p ? p : d < -p ? -p : d)
PAIR(KIND_KL, (t == 0 ? (T)0 : t * log(t)) - t * x, -t)
PAIR(KIND_KL_LOG, exp(t) * (t - x), -exp(t))
PAIR(KIND_BCE, logistic(x, x > 0 ? 1 - t : -t), amp_sigmoid(x) - t)
PAIR(KIND_SOFT_MARGIN, soft(-t * x), -t * amp_sigmoid(-t * x))
PAIR(KIND_HINGE, (t != -1 ? x : (T)0) + (t != 1 ? (p - x < 0 ? (T)0 : p - x) : (T)0),
     (t != -1 ? (T)1 : (T)0) - (t != 1 && p - x > 0 ? (T)1 : (T)0))
PAIR(KIND_POISSON, x - t * log(x + p), 1 - t / (x + p))
PAIR(KIND_POISSON_LOG, exp(x) - t * x, exp(x) - t)
PAIR(KIND_BCE_PROBS, -(t * log_or(log(x)) + (1 - t) * log_or(log1p(-x))), d / at_least(x * (1 - x), p))
PAIR(MSE, d * d, 2 * d)
#undef PAIR
/* clang-format on */
