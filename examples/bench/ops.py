"""Twin of ops.lua."""
import os, sys, time, torch
import torch.nn.functional as F
torch.set_num_threads(int(os.environ.get('OMP_NUM_THREADS', '1')))
HERE = os.path.dirname(os.path.abspath(__file__))
PATTERN = sys.argv[1] if len(sys.argv) > 1 else ''
KINDS = {
    'm': [(8, 8), (64, 64), (512, 512), (2048, 2048)],
    'c': [(1, 8, 8, 8), (4, 16, 16, 16), (8, 32, 28, 28), (8, 64, 56, 56)],
    'a': [(1, 1, 8, 16), (2, 4, 64, 32), (4, 8, 256, 64), (4, 8, 512, 64)],
}


def inputs(kind, size, train):
    torch.manual_seed(1)
    n = size[1] if kind == 'c' else size[-1]
    e = dict(torch=torch, F=F, n=n, x=torch.rand(size) * 0.9 + 0.05, y=torch.rand(size) * 0.9 + 0.05, s=torch.rand(size) * 4 - 2,
             r=torch.ones(n), l=torch.randint(0, n, (size[0],)), i=torch.randint(0, size[0], (size[0],)))
    e['b'] = e['y'] > 0.5
    if kind == 'm': e['j'] = torch.randint(0, n, size)
    if kind == 'c': e['w'] = torch.randn(n, n, 3, 3) * 0.1
    if train:
        for k in {'m': 'xyr', 'c': 'xwr', 'a': 'xys'}[kind]: e[k].requires_grad_()
    return e


def best(f, n, seconds):
    f()
    t, runs, stop = float('inf'), 0, time.perf_counter() + seconds
    while True:
        s = time.perf_counter()
        f()
        t = min(t, time.perf_counter() - s)
        runs += 1
        if time.perf_counter() > stop and runs >= 5: return t / n


for line in open(os.path.join(HERE, 'ops.tsv')):
    if line.startswith('#'): continue
    name, kind, _, py = line.rstrip('\n').split('\t')
    if PATTERN not in name: continue
    train = py.startswith('+')
    for k, size in enumerate(KINDS[kind]):
        e = inputs(kind, size, train)
        body = 'o = %s; o.sum().backward()' % py[1:] if train else py
        exec('def run(m):\n  for _ in range(m): %s\n' % body, e)
        run = e['run']
        with torch.set_grad_enabled(train):
            run(2)
            s = time.perf_counter()
            run(1)
            m = max(1, min(2000, int(0.01 / max(time.perf_counter() - s, 1e-7))))
            print('%s_%d %.6g us' % (name, k + 1, best(lambda: run(m), m, 0.08) * 1e6), flush=True)
