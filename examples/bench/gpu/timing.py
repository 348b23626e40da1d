"""Shared by the PyTorch twins: see timing.lua."""
import statistics
import time
import torch


def clock(step, warm=10, n=40, reps=3):
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    t = []
    for _ in range(reps):
        start = time.perf_counter()
        for _ in range(n):
            step()
        torch.cuda.synchronize()
        t.append((time.perf_counter() - start) * 1e3 / n)
    return statistics.median(t), torch.cuda.max_memory_allocated() / 2**20


def row(name, make, **k):
    try:
        ms, mib = clock(make(), **k)
        print(f'{name:44s} {ms:10.4f} ms {mib:9.0f} MiB', flush=True)
    except Exception as e:
        print(f'{name:44s} failed: {type(e).__name__}: {str(e)[:200]}', flush=True)
    torch.cuda.empty_cache()


def captured(step, warm=5):
    """The whole step in a CUDA graph, as PyTorch's manual describes it."""
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(warm):
            step()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        step()
    return g.replay
