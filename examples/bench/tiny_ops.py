import torch
from timing import best, report

a, b = torch.randn(4, 4), torch.randn(4, 4) * 1e-6
w = torch.randn(4, 4, requires_grad=True)
n = 50000


def add_():
    for _ in range(n): a.add_(b)


def add():
    for _ in range(n): a + b


def add_grad():
    for _ in range(n): w + b


def relu():
    for _ in range(n): a.relu()


def mul():
    for _ in range(n): a * 2


for name, f in [('add_', add_), ('a+b', add), ('a+b_grad', add_grad), ('relu', relu), ('a*2', mul)]:
    report(name, best(f, n, 1) * 1e6, 'us')
