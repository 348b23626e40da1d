import torch
import torch.nn as nn
from timing import best, report

torch.manual_seed(1)
W, B = 2048, 256
net = nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, W), nn.ReLU(), nn.Linear(W, W))
x, y = torch.randn(B, W), torch.randn(B, W)
loss = nn.MSELoss()


def step(opt, enabled):
    with torch.autocast('cpu', dtype=torch.bfloat16, enabled=enabled):
        v = loss(net(x), y)
    v.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)


opts = [torch.optim.SGD(net.parameters(), lr=1e-3)]
try:
    opts.append(torch.optim.SGD(net.parameters(), lr=1e-3, fused=True))
except (RuntimeError, TypeError):
    pass
f32 = b16 = float('inf')
for o in opts:
    f32 = min(f32, best(lambda: step(o, False), 1, 2))
    b16 = min(b16, best(lambda: step(o, True), 1, 2))
report('float32', f32 * 1e3, 'ms')
report('bfloat16', b16 * 1e3, 'ms')
