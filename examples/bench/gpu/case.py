"""The PyTorch twins of case.lua: `python3 case.py NAME PRECISION VARIANT [size=N ...] [device=cuda] [seconds=0.15] ...`
VARIANT: default (the optimizer as it comes), fused, compiled (torch.compile, fused optimizer), captured (the whole step
in a CUDA graph). Prints `ok`, ms a step, MiB, fastest and slowest run, or `failed` and why.
`python3 case.py --serve` answers such lines from its input one by one, so that PyTorch is imported once; between two
of them garbage, cached blocks and the peak of memory go."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

import models
from timing import answer, captured, clock, options, serve

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def trainer(o, opt, loss_of, inputs):
    """step(): one step with the next of inputs; captured, they are copied into the graph's own."""
    scaler = torch.amp.GradScaler('cuda' if o['device'].startswith('cuda') else 'cpu', enabled=o['precision'] == 'fp16')
    low = torch.bfloat16 if o['precision'] == 'bf16' else torch.float16
    kind = o['device'].split(':')[0]

    def step(*data):
        with torch.autocast(kind, dtype=low, enabled=o['precision'] != 'fp32'):
            loss = loss_of(*data)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)

    at = [0]
    if o['variant'] == 'captured':
        own = [t.clone() for t in inputs[0]]
        replay = captured(lambda: step(*own))

        def run():
            at[0] = (at[0] + 1) % len(inputs)
            for mine, given in zip(own, inputs[at[0]]):
                mine.copy_(given)
            replay()
        return run

    def run():
        at[0] = (at[0] + 1) % len(inputs)
        step(*inputs[at[0]])
    return run


def optimizer(o, name, parameters):
    fused = None if o['variant'] == 'default' else True
    graph = {'capturable': True} if o['variant'] == 'captured' else {}
    if name == 'adamw':
        return torch.optim.AdamW(parameters, lr=1e-4, fused=fused, **graph)
    if name == 'momentum':
        return torch.optim.SGD(parameters, lr=.01, momentum=.9, weight_decay=5e-4, fused=fused)
    return torch.optim.SGD(parameters, lr=1e-3, fused=fused)


def maybe_compiled(o, net):
    return torch.compile(net) if o['variant'] == 'compiled' else net


def mlp(o, width=4096, batch=512, layers=3, opt='sgd'):
    dev = o['device']
    net = models.mlp(width, layers).to(dev)
    data = [(torch.randn(batch, width, device=dev), torch.randn(batch, width, device=dev)) for _ in range(8)]
    f, loss_of = maybe_compiled(o, net), nn.MSELoss()
    return trainer(o, optimizer(o, opt, net.parameters()), lambda x, y: loss_of(f(x), y), data)


def resnet(o, batch=128, size=224, width=64, blocks='3,4,6,3', classes=1000):
    dev = o['device']
    net = models.ResNet([int(n) for n in str(blocks).split(',')], width, classes).to(dev).to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device=dev).to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,), device=dev)
    f = maybe_compiled(o, net)
    return trainer(o, optimizer(o, 'momentum', net.parameters()), lambda a, b: F.cross_entropy(f(a), b), [(x, y)])


def gpt2(o, batch=16, tokens=1024, width=768, layers=12, heads=12, vocabulary=50257):
    dev = o['device']
    net = models.GPT2(vocabulary, width, layers, heads, tokens).to(dev)
    x, y = (torch.randint(0, vocabulary, (batch, tokens), device=dev) for _ in range(2))
    f = maybe_compiled(o, net)
    return trainer(o, optimizer(o, 'adamw', net.parameters()), lambda a, b: f(a, b), [(x, y)])


def lstm(o, width=512, batch=64, time=64, layers=2, kind='LSTM'):
    dev = o['device']
    net = getattr(nn, kind)(width, width, layers).to(dev)
    x, y = (torch.randn(time, batch, width, device=dev) for _ in range(2))
    return trainer(o, optimizer(o, 'sgd', net.parameters()), lambda a, b: F.mse_loss(net(a)[0], b), [(x, y)])


def cell(o, width=512, batch=64, time=64):
    dev = o['device']
    net = nn.LSTMCell(width, width).to(dev)
    x, y = (torch.randn(time, batch, width, device=dev) for _ in range(2))

    def loss_of(a, b):
        h, c, outs = torch.zeros(batch, width, device=dev), torch.zeros(batch, width, device=dev), []
        for t in range(time):
            h, c = net(a[t], (h, c))
            outs.append(h)
        return F.mse_loss(torch.stack(outs), b)
    return trainer(o, optimizer(o, 'sgd', net.parameters()), loss_of, [(x, y)])


def probe(o, n=8192, copy=2**28):
    """Bytes a second of copies (read and written), FLOP/s of 16-bit and of float32 products of square matrices."""
    dev, t = o['device'], o['clock']
    a, b = torch.randn(copy, device=dev), torch.empty(copy, device=dev)
    out = [8 * copy / clock(lambda: b.copy_(a), **t)[0] * 1e3]
    for dtype, size in ((torch.float16, n), (torch.float32, n // 2)):
        x, y = (torch.randn(size, size, device=dev).to(dtype) for _ in range(2))
        out.append(2 * size**3 / clock(lambda: torch.mm(x, y), **t)[0] * 1e3)
    return out


cases = {f.__name__: f for f in (mlp, resnet, gpt2, lstm, cell)}


def run(words):
    o, rest = options(words)
    name = rest[0]
    device = o.pop('device', 'cuda')
    t = {k: o.pop(k) for k in ('seconds', 'reps', 'warm') if k in o}
    t['device'] = device
    if name == 'probe':
        return probe({'device': device, 'clock': t}, **o)
    precision, variant = rest[1:3]
    torch.manual_seed(1)
    torch._dynamo.reset() if variant == 'compiled' else None
    step = cases[name]({'device': device, 'precision': precision, 'variant': variant}, **o)
    ms, mib, times = clock(step, whole=variant == 'captured', **t)
    return [ms, mib, times[0], times[-1]]


if __name__ == '__main__':
    if sys.argv[1:2] == ['--serve']:
        serve(run)
    else:
        print(answer(run, sys.argv[1:]))
