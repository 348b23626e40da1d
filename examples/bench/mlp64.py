import torch
import torch.nn as nn
from timing import best, report

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
x, y = torch.randn(32, 64), torch.randn(32, 64)
loss = nn.MSELoss()
n = 200


def measure(opt):
    def run():
        for _ in range(n):
            loss(net(x), y).backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
    return best(run, n, 2)


def optimizers(cls, lr):
    for fused in (False, True):
        try:
            yield cls(net.parameters(), lr=lr, fused=fused)
        except (RuntimeError, TypeError):
            pass


# the peer at its best: plain or fused, whichever is faster
report('step_sgd', min(measure(o) for o in optimizers(torch.optim.SGD, 1e-3)) * 1e6, 'us')
report('step_adamw', min(measure(o) for o in optimizers(torch.optim.AdamW, 1e-4)) * 1e6, 'us')
