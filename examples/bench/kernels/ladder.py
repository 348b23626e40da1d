"""The PyTorch twins of cases.lua: `python3 ladder.py NAME n=N dtype=float16 many=10 device=cuda`, spaces of a name as _;
`--serve` answers such lines of its input. `many` calls are captured as one CUDA graph; ms a call."""
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'gpu'))
from timing import answer, captured, clock, options, serve  # noqa: E402

WORDS, WIDE = 32768, 512


class Case:
    """Tensors of n elements of a dtype on a device."""

    def __init__(self, n, dtype, device):
        self.n, self.dtype, self.device = int(n), getattr(torch, dtype), device

    def flat(self, n=None, dtype=None):
        return torch.randn(int(n or self.n), device=self.device).to(dtype or self.dtype)

    def matrix(self, columns=1024):
        rows = max(1, self.n // columns)
        return self.flat(rows * columns).view(rows, columns)

    def images(self):
        side = 16 if self.n >= 2**19 else 4
        count = max(1, self.n // (64 * side * side))
        return self.flat(count * 64 * side * side).view(-1, side, side, 64).permute(0, 3, 1, 2)

    def labels(self):
        x = self.matrix(16384 if self.n >= 2**20 else 256)
        return x, torch.randint(0, x.shape[1], (x.shape[0],), device=self.device)

    def parameter(self):
        p = torch.nn.Parameter(self.flat(dtype=torch.float32))
        p.grad = self.flat(dtype=torch.float32)
        return p


def both(fn, inputs, g=None):
    for t in inputs:
        t.requires_grad_()
    return lambda: torch.autograd.grad(fn(), inputs, g)


def batch_norm(c):
    x, weight, bias = c.images(), c.flat(64, torch.float32), c.flat(64, torch.float32)
    mean, var = torch.zeros(64, device=c.device), torch.ones(64, device=c.device)
    return lambda: F.batch_norm(x, mean, var, weight, bias, training=True), [x, weight, bias]


def layer_norm(c):
    x, weight, bias = c.matrix(), c.flat(1024), c.flat(1024)
    return lambda: F.layer_norm(x, (1024,), weight, bias), [x, weight, bias]


def embedding(c):
    weight = c.flat(WORDS * WIDE).view(WORDS, WIDE)
    x = torch.randint(0, WORDS, (max(1, c.n // WIDE),), device=c.device)
    return lambda: F.embedding(x, weight), weight


def copy(c, dtype=None):
    a, b = c.flat(dtype=dtype), torch.empty(c.n, device=c.device, dtype=c.dtype)
    return lambda: b.copy_(a)


def transpose_copy(c):
    a = c.matrix().t()
    b = torch.empty(a.shape, device=c.device, dtype=c.dtype)
    return lambda: b.copy_(a)


def add(c):
    a, b = c.flat(), c.flat()
    return lambda: a + b


def add_(c):
    a, b = c.flat(), c.flat() * 0
    return lambda: a.add_(b)


def unary(fn):
    def make(c):
        x = c.flat()
        return lambda: fn(x)
    return make


def unary_both(fn):
    def make(c):
        x = c.flat()
        return both(lambda: fn(x), [x], c.flat())
    return make


def of_matrix(fn):
    def make(c):
        x = c.matrix()
        return lambda: fn(x)
    return make


def softmax_both(c):
    x = c.matrix()
    return both(lambda: F.softmax(x, 1), [x], c.matrix())


def cross_entropy(c):
    x, y = c.labels()
    return lambda: F.cross_entropy(x, y)


def cross_entropy_both(c):
    x, y = c.labels()
    return both(lambda: F.cross_entropy(x, y), [x])


def layer_norm_both(c):
    fn, inputs = layer_norm(c)
    return both(fn, inputs, c.matrix())


def batch_norm_both(c):
    fn, inputs = batch_norm(c)
    return both(fn, inputs, c.images())


def embedding_both(c):
    fn, weight = embedding(c)
    return both(fn, [weight], c.flat(max(1, c.n // WIDE) * WIDE).view(-1, WIDE))


def stepper(make, **k):
    def of(c):
        if make is not torch.optim.SGD:
            k['capturable'] = c.device.startswith('cuda')
        return make([c.parameter()], lr=1e-6, fused=True, **k).step
    return of


def unscale(c):
    opt = torch.optim.SGD([c.parameter()], lr=1e-6)
    scaler = torch.amp.GradScaler(c.device.split(':')[0], init_scale=1.0, growth_interval=10**9)
    scaler.scale(torch.ones(1, device=c.device))

    def run():
        scaler.unscale_(opt)
        scaler.update()
    return run


def clip(c):
    p = c.parameter()
    return lambda: torch.nn.utils.clip_grad_norm_([p], 1)


cases = {
    'copy': copy,
    'cast_from_float32': lambda c: copy(c, torch.float32),
    'transpose_copy': transpose_copy,
    'add': add,
    'add_': add_,
    'relu': unary(F.relu),
    'relu_and_backward': unary_both(F.relu),
    'gelu': unary(F.gelu),
    'gelu_and_backward': unary_both(F.gelu),
    'dropout_and_backward': unary_both(lambda x: F.dropout(x, 0.1)),
    'sum': unary(torch.sum),
    'mean_of_rows': of_matrix(lambda x: x.mean(1)),
    'sum_of_columns': of_matrix(lambda x: x.sum(0)),
    'norm': unary(torch.norm),
    'softmax': of_matrix(lambda x: F.softmax(x, 1)),
    'softmax_and_backward': softmax_both,
    'cross_entropy': cross_entropy,
    'cross_entropy_and_backward': cross_entropy_both,
    'layer_norm': lambda c: layer_norm(c)[0],
    'layer_norm_and_backward': layer_norm_both,
    'batch_norm': lambda c: batch_norm(c)[0],
    'batch_norm_and_backward': batch_norm_both,
    'embedding': lambda c: embedding(c)[0],
    'embedding_and_backward': embedding_both,
    'sgd': stepper(torch.optim.SGD),
    'sgd_momentum': stepper(torch.optim.SGD, momentum=0.9),
    'adam': stepper(torch.optim.Adam),
    'adamw': stepper(torch.optim.AdamW),
    'unscale_and_check': unscale,
    'clip_grad_norm': clip,
}


def run(words):
    o, (name,) = options(words)
    torch.manual_seed(1)
    fn = cases[name](Case(o['n'], o['dtype'], o['device']))
    many = o['many']
    t = {k: o[k] for k in ('device', 'seconds', 'reps', 'warm')}
    if many == 1:
        return [clock(fn, **t)[0]]

    def calls():
        for _ in range(many):
            fn()
    return [clock(captured(calls), **t)[0] / many]


if __name__ == '__main__':
    if sys.argv[1:2] == ['--serve']:
        serve(run)
    else:
        print(answer(run, sys.argv[1:]))
