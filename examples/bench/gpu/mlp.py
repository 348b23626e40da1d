"""PyTorch twin of mlp.lua: default optimizer, fused optimizer, and the whole step in a CUDA graph."""
import sys
import torch
from torch import nn
from timing import captured, row

torch.backends.cuda.matmul.allow_tf32 = False


def net_of(width, layers):
    out = []
    for i in range(layers):
        out.append(nn.Linear(width, width))
        if i < layers - 1:
            out.append(nn.ReLU())
    return nn.Sequential(*out).cuda()


def case(precision, width, batch, layers, graph=False, opt='sgd', fused=None):
    def make():
        torch.manual_seed(1)
        net = net_of(width, layers)
        kw = {'capturable': True} if graph and opt == 'adamw' else {}
        o = (torch.optim.SGD if opt == 'sgd' else torch.optim.AdamW)(net.parameters(), lr=1e-3, fused=fused, **kw)
        scaler = torch.amp.GradScaler('cuda', enabled=precision == 'fp16')
        data = [(torch.randn(batch, width, device='cuda'), torch.randn(batch, width, device='cuda')) for _ in range(8)]
        sx, sy = data[0][0].clone(), data[0][1].clone()
        loss_of = nn.MSELoss()

        def step(x, y):
            with torch.autocast('cuda', dtype=torch.bfloat16 if precision == 'bf16' else torch.float16, enabled=precision != 'fp32'):
                loss = loss_of(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(o)
            scaler.update()
            o.zero_grad(set_to_none=True)
        i = [0]
        if graph:
            replay = captured(lambda: step(sx, sy))

            def run():
                x, y = data[i[0] % 8]
                i[0] += 1
                sx.copy_(x)
                sy.copy_(y)
                replay()
            return run

        def run():
            x, y = data[i[0] % 8]
            i[0] += 1
            step(x, y)
        return run
    return make


sizes = [(4096, 512, 3), (4096, 128, 3), (1024, 128, 3), (64, 32, 3)]
if len(sys.argv) >= 4:
    a = [int(v) for v in sys.argv[1:]]
    sizes = [tuple(a[i:i + 3]) for i in range(0, len(a), 3)]
print(torch.__version__, torch.cuda.get_device_name(0), torch.version.cuda)
for width, batch, layers in sizes:
    name = f'mlp {layers}x{width} b{batch} '
    for p in ('fp32', 'fp16', 'bf16'):
        row(name + 'sgd ' + p, case(p, width, batch, layers))
        row(name + 'sgd ' + p + ' fused', case(p, width, batch, layers, fused=True))
        row(name + 'sgd ' + p + ' captured', case(p, width, batch, layers, graph=True, fused=True))
    row(name + 'adamw fp16', case('fp16', width, batch, layers, opt='adamw'))
    row(name + 'adamw fp16 fused', case('fp16', width, batch, layers, opt='adamw', fused=True))
    row(name + 'adamw fp16 captured', case('fp16', width, batch, layers, graph=True, opt='adamw', fused=True))
