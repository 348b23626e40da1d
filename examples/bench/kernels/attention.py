"""The PyTorch twin of attention.lua: `python3 attention.py [small] [dtype=bfloat16] [device=cuda] [seconds=0.15]`."""
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'gpu'))
from timing import clock, options

SHAPES = [(16, 1024, 12, 64, True), (16, 1024, 12, 64, False), (8, 2048, 16, 64, True), (4, 4096, 16, 64, True), (4, 4096, 16, 64, False),
          (8, 2048, 8, 128, True), (4, 4096, 8, 128, True), (4, 4096, 8, 128, False), (1, 16384, 16, 64, True), (32, 512, 12, 64, False),
          (64, 197, 12, 64, False), (16, 1024, 12, 40, True)]


def main():
    o, words = options(sys.argv[1:])
    small = words[:1] == ['small']
    device, dtype = o.get('device', 'cuda'), o.get('dtype', 'bfloat16')
    rule = dict(device=device, seconds=o.get('seconds', 0.01 if small else 0.15))
    if small:
        rule.update(warm=0.01, reps=1, calls=1)
    print(f"{'N x T x H x D, ' + dtype:34s} {'forward':>10s} {'TFLOP/s':>9s} {'backward':>10s} {'TFLOP/s':>9s}")
    for n, t, h, d, causal in [(1, 100, 2, 64, True), (1, 64, 1, 128, False)] if small else SHAPES:
        qkv = torch.randn(n, t, 3, h, d, device=device).to(getattr(torch, dtype))
        g = torch.randn(n, t, h, d, device=device).to(qkv.dtype).transpose(1, 2)

        def attend(p):
            return F.scaled_dot_product_attention(*p, is_causal=causal)

        parts = [x.transpose(1, 2) for x in qkv.unbind(2)]
        with torch.no_grad():
            forward = clock(lambda: attend(parts), **rule)[0]
        leaf = [x.detach().requires_grad_() for x in parts]

        def step():
            attend(leaf).backward(g)
            for x in leaf:
                x.grad = None

        both = clock(step, **rule)[0]
        work = n * h * t * t * d * (0.5 if causal else 1) / 1e9
        name = f"{n} x {t} x {h} x {d}{' causal' if causal else ''}"
        print(f'{name:34s} {forward:7.3f} ms {4 * work / forward:9.1f} {both - forward:7.3f} ms {10 * work / (both - forward):9.1f}', flush=True)


if __name__ == '__main__':
    main()
