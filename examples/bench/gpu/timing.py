"""Shared by the PyTorch twins: the rule of timing.lua, with PyTorch."""
import gc
import math
import os
import statistics
import sys
import time

import torch


def wait(device='cuda'):
    if device.startswith('cuda'):
        torch.cuda.synchronize()


def run(step, n, device):
    start = time.perf_counter()
    for _ in range(n):
        step()
    wait(device)
    return time.perf_counter() - start


def clock(step, device='cuda', seconds=0.15, warm=0.3, calls=4, reps=5, whole=False):
    """Milliseconds a call (median), MiB at most, and the milliseconds of each run."""
    gpu = device.startswith('cuda')
    for _ in range(calls):
        step()
    wait(device)
    if gpu and not whole:
        torch.cuda.reset_peak_memory_stats()
    spent = 0
    while True:
        one = run(step, 1, device)
        spent += one
        if spent >= warm:
            break
    n = max(1, math.ceil(seconds / one))
    if n > 4:
        n = max(n, math.ceil(seconds / (run(step, n, device) / n)))
    t = sorted(run(step, n, device) * 1e3 / n for _ in range(reps))
    return statistics.median(t), torch.cuda.max_memory_allocated() / 2**20 if gpu else 0.0, t


def forget():
    """Nothing of one case stays for the next: garbage, cached blocks, workspaces, the peak."""
    gc.collect()
    if torch.cuda.is_available():
        getattr(torch._C, '_cuda_clearCublasWorkspaces', lambda: None)()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def options(words):
    """`name=value` words as a dict, numbers as numbers; `--name` as True; the others in order."""
    o, rest = {}, []
    for w in words:
        name, eq, value = w.lstrip('-').partition('=')
        if eq:
            try:
                o[name] = int(value)
            except ValueError:
                try:
                    o[name] = float(value)
                except ValueError:
                    o[name] = value
        elif w.startswith('--'):
            o[name] = True
        else:
            rest.append(w)
    return o, rest


def captured(step, warm=3):
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


def answer(run, words):
    """The numbers that run(words) gives as a line: `ok` and they, or `failed` and why."""
    try:
        text = 'ok\t' + '\t'.join(f'{v:.6g}' for v in run(words))
    except Exception as e:
        text = 'failed\t' + f'{type(e).__name__}: {e}'.split('\n')[0][:300].replace('\t', ' ')
    forget()
    return text


def serve(run):
    """Answer the lines of standard input one by one; the first line says what PyTorch this is."""
    gpu = torch.cuda.is_available()
    answers = os.fdopen(os.dup(1), 'w')  # what a library prints does not get between the answers
    os.dup2(2, 1)
    print('ready', torch.__version__, torch.cuda.get_device_name(0) if gpu else 'no GPU', f'CUDA {torch.version.cuda}',
          f'cuDNN {torch.backends.cudnn.version()}', f'{torch.get_num_threads()} threads', sep='\t', file=answers, flush=True)
    for line in sys.stdin:
        print(answer(run, line.split()), file=answers, flush=True)
