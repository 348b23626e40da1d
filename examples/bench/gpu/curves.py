"""The PyTorch half of curves.lua: `python3 curves.py NAME PRECISION,PRECISION WEIGHTS.safetensors OUT [size=N ...]` trains
from the weights and data of a file, once in each precision, and writes the loss of each step to OUT.PRECISION, a line
each. Reads safetensors with json and numpy."""
import json
import sys

import numpy
import torch
import torch.nn.functional as F

import models
from timing import options

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def load(path):
    """name -> tensor of a safetensors file: 8 bytes of length, a JSON header, the data."""
    kinds = {'F32': numpy.float32, 'I64': numpy.int64}
    with open(path, 'rb') as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), 'little')))
        data = f.read()
    out = {}
    for name, e in header.items():
        if name != '__metadata__':
            first, last = e['data_offsets']
            out[name] = torch.from_numpy(numpy.frombuffer(data[first:last], kinds[e['dtype']]).reshape(e['shape']).copy())
    return out


def network(name, s):
    if name == 'recipe':
        return models.mlp(s['width'], s['layers'])
    if name == 'resnet':
        return models.ResNet([int(n) for n in str(s['blocks']).split(',')], s['width'], s['classes'])
    return models.GPT2(s['vocabulary'], s['width'], s['layers'], s['heads'], s['tokens'])


def optimizer(name, s, parameters):
    if name == 'recipe':
        return torch.optim.SGD(parameters, lr=s['lr'] * s['width'])
    if name == 'resnet':
        return torch.optim.SGD(parameters, lr=s['lr'], momentum=0.9, weight_decay=5e-4)
    return torch.optim.AdamW(parameters, lr=s['lr'], weight_decay=0.01)


def loss_of(name, net, x, y):
    if name == 'recipe':
        return F.mse_loss(net(x), y)
    return F.cross_entropy(net(x), y) if name == 'resnet' else net(x, y)


def train(name, precision, s, state, xs, ys):
    dev = s.get('device', 'cuda')
    net = network(name, s)
    missing, unexpected = net.load_state_dict(state, strict=False)
    missing = [n for n in missing if not n.endswith(('running_mean', 'running_var', 'num_batches_tracked'))]
    if missing or unexpected:
        raise SystemExit(f'weights do not fit: missing {missing}, unexpected {unexpected}')
    net = net.to(dev)
    if name == 'resnet':
        net = net.to(memory_format=torch.channels_last)
    opt = optimizer(name, s, net.parameters())
    scaler = torch.amp.GradScaler(dev.split(':')[0], enabled=precision == 'fp16')
    low = torch.bfloat16 if precision == 'bf16' else torch.float16
    losses = []
    for i in range(s['steps']):
        x, y = xs[i % len(xs)].to(dev), ys[i % len(xs)].to(dev)
        if name == 'resnet':
            x = x.to(memory_format=torch.channels_last)
        with torch.autocast(dev.split(':')[0], dtype=low, enabled=precision != 'fp32'):
            loss = loss_of(name, net, x, y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def main():
    s, (name, precisions, weights, out) = options(sys.argv[1:])
    state = load(weights)
    xs, ys = state.pop('data.x'), state.pop('data.y')
    for precision in precisions.split(','):
        losses = train(name, precision, s, state, xs, ys)
        with open(f'{out}.{precision}', 'w') as f:
            f.writelines(f'{v:.9g}\n' for v in losses)


main()
