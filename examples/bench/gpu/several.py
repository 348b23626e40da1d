"""PyTorch's twin of several.lua: torchrun --nproc-per-node 2 several.py"""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("nccl")
rank, n, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)


def measure(name, rounds, fn):
    for _ in range(5):
        fn()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(rounds):
            fn()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / rounds)
    if rank == 0:
        print(f"{name:40s} {n} ranks {best * 1e3:9.3f} ms", flush=True)
    return best


for size in (2**20, 2**30):
    t = torch.ones(size // 4, device="cuda")
    s = measure(f"all-reduce of {size >> 20} MiB", 20, lambda t=t: dist.all_reduce(t))
    if rank == 0 and n > 1:
        print(f"{'':40s} {size / s / 1e9:.0f} GB/s", flush=True)

torch.manual_seed(1)
layers = [nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)]
net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[local], gradient_as_bucket_view=True)
opt, scaler = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True), torch.amp.GradScaler("cuda")
x, y = torch.randn(512, 4096, device="cuda"), torch.randint(4096, (512,), device="cuda")


def step():
    with torch.autocast("cuda", torch.float16):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()


measure("3 x Linear(4096), batch 512, float16", 20, step)
dist.destroy_process_group()
