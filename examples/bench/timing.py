"""Shared by the PyTorch twins: best wall time of a call, in seconds."""
import os
import time
import torch

torch.set_num_threads(int(os.environ.get('OMP_NUM_THREADS', '1')))


def best(f, n=1, seconds=0.5):
    f()
    result, stop, runs = float('inf'), time.perf_counter() + seconds, 0
    while runs < 5 or time.perf_counter() < stop:
        s = time.perf_counter()
        f()
        result = min(result, time.perf_counter() - s)
        runs += 1
    return result / n


def report(name, value, unit):
    print(f'{name} {value:.6g} {unit}')
