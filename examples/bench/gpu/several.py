"""PyTorch's twin of several.lua: torchrun --nproc-per-node 2 several.py [mlp resnet gpt2 reduce]; DistributedDataParallel,
fused optimizers, gradients as views of the buckets."""
import os
import sys
import time

import torch
import torch.distributed as dist

import case

dist.init_process_group("nccl")
rank, n, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = f"cuda:{local}"


def measure(name, rounds, fn):
    for _ in range(8):
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
        print(f"PyTorch\t{name}\t{n} ranks\t{best * 1e3:.3f} ms", flush=True)
    return best


def parallel(_, net):
    if n == 1:
        return net
    return torch.nn.parallel.DistributedDataParallel(net, device_ids=[local], gradient_as_bucket_view=True)


case.maybe_compiled = parallel
precision = {"mlp": "fp16", "resnet": "fp16", "gpt2": "bf16"}
for name in sys.argv[1:] or ["reduce", "mlp", "resnet", "gpt2"]:
    if name == "reduce":
        for size in (2**20, 2**26, 2**30):
            t = torch.zeros(size // 4, device=device)
            s = measure(f"all-reduce of {size >> 20} MiB", 10 if size > 2**28 else 50, lambda t=t: dist.all_reduce(t))
            if rank == 0 and n > 1:
                print(f"PyTorch\tall-reduce of {size >> 20} MiB\t{n} ranks\t{size / s / 1e9:.1f} GB/s", flush=True)
            del t
    else:
        torch.manual_seed(rank)
        step = case.cases[name]({"device": device, "precision": precision[name], "variant": "fused"})
        measure(f"{name} {precision[name]}", 50 if name == "mlp" else 10, step)
        del step
        torch.cuda.empty_cache()
dist.destroy_process_group()
