"""Plain PyTorch twins of examples/models: the same layers under the same names, but that PyTorch counts a list's parts
from 0. Labels and tokens count from 0, too."""
import math

import torch
import torch.nn.functional as F
from torch import nn


def mlp(width=4096, layers=3):
    parts = []
    for i in range(layers):
        parts.append(nn.Linear(width, width))
        if i < layers - 1:
            parts.append(nn.ReLU())
    return nn.Sequential(*parts)


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = width * 4
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        before = width
        for i, n in enumerate(blocks):
            parts = []
            for k in range(n):
                parts.append(Bottleneck(before, width * 2**i, 2 if k == 0 and i > 0 else 1))
                before = width * 2**i * 4
            setattr(self, f'layer{i + 1}', nn.Sequential(*parts))
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        for i in range(1, 5):
            x = getattr(self, f'layer{i}')(x)
        return self.fc(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.qkv, self.proj, self.ln_2 = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size), nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(approximate='tanh'), nn.Linear(4 * size, size))

    def forward(self, x):
        n, t, size = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(n, t, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, size))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, vocabulary=50257, size=768, layers=12, heads=12, context=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, size), nn.Embedding(context, size)
        self.h = nn.ModuleList([Block(size, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(size)
        for name, p in self.named_parameters():
            if name.endswith('bias'):
                nn.init.zeros_(p)
            elif 'ln_' not in name:
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * layers) if name.endswith('proj.weight') else 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
