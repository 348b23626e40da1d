import gzip
import os
import struct
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from timing import report

folder = os.environ['AMP_BENCH_DATA']


def idx(name):
    raw = gzip.open(os.path.join(folder, name)).read()
    dims = struct.unpack('>%dI' % raw[3], raw[4:4 + 4 * raw[3]])
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3]:]), dtype=torch.uint8).reshape(dims)


images = idx('train-images-idx3-ubyte.gz').unsqueeze(1).float() / 255
labels = idx('train-labels-idx1-ubyte.gz').long()
passes = int(os.environ.get('BENCH_PASSES', 1))


def run(bf16):
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 7 * 7, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for p in range(passes + 1):
        if p == 1:
            began = time.perf_counter()
        order = torch.randperm(len(labels))
        for n, i in enumerate(range(0, len(labels) - 99, 100)):
            if p == 0 and n == 10:
                break
            rows = order[i:i + 100]
            x, y = images[rows], labels[rows]
            with torch.autocast('cpu', dtype=torch.bfloat16, enabled=bf16):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
    return (time.perf_counter() - began) / passes


report('float32_epoch', run(False), 's')
report('bfloat16_epoch', run(True), 's')
