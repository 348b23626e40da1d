"""PyTorch twin of models.lua: `python3 models.py [resnet gpt2 lstm cell]`, each in PyTorch's best eager form, compiled
where it gains, and captured where a CUDA graph takes it."""
import math
import sys
import torch
import torch.nn.functional as F
from torch import nn
from timing import captured, row

dev = 'cuda'
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def train(loss_of, o, precision, graph=False):
    scaler = torch.amp.GradScaler('cuda', enabled=precision == 'fp16')
    dt = torch.bfloat16 if precision == 'bf16' else torch.float16

    def step():
        with torch.autocast('cuda', dtype=dt, enabled=precision != 'fp32'):
            loss = loss_of()
        scaler.scale(loss).backward()
        scaler.step(o)
        scaler.update()
        o.zero_grad(set_to_none=True)
    return captured(step) if graph else step


def resnet(precision, compiled=False, graph=False):
    def make():
        import torchvision
        net = torchvision.models.resnet50().to(dev).to(memory_format=torch.channels_last)
        x = torch.randn(128, 3, 224, 224, device=dev).to(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (128,), device=dev)
        o = torch.optim.SGD(net.parameters(), lr=.01, momentum=.9, weight_decay=5e-4, fused=True)
        f = torch.compile(net) if compiled else net
        return train(lambda: F.cross_entropy(f(x), y), o, precision, graph)
    return make


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


def gpt2(precision, compiled=False, graph=False):
    def make():
        net = GPT2().to(dev)
        x, y = (torch.randint(0, 50257, (16, 1024), device=dev) for _ in range(2))
        o = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True, capturable=graph)
        f = torch.compile(net) if compiled else net
        return train(lambda: f(x, y), o, precision, graph)
    return make


T, B, H = 64, 64, 512


def lstm(precision, graph=False):
    def make():
        net = nn.LSTM(H, H, 2).to(dev)
        x, y = torch.randn(T, B, H, device=dev), torch.randn(T, B, H, device=dev)
        o = torch.optim.SGD(net.parameters(), lr=1e-2, fused=True)
        return train(lambda: F.mse_loss(net(x)[0], y), o, precision, graph)
    return make


def cell(precision, graph=False):
    def make():
        net = nn.LSTMCell(H, H).to(dev)
        x, y = torch.randn(T, B, H, device=dev), torch.randn(T, B, H, device=dev)
        o = torch.optim.SGD(net.parameters(), lr=1e-2, fused=True)

        def loss_of():
            h, c, outs = torch.zeros(B, H, device=dev), torch.zeros(B, H, device=dev), []
            for t in range(T):
                h, c = net(x[t], (h, c))
                outs.append(h)
            return F.mse_loss(torch.stack(outs), y)
        return train(loss_of, o, precision, graph)
    return make


print(torch.__version__, torch.cuda.get_device_name(0), torch.backends.cudnn.version())
for name in sys.argv[1:] or ['resnet', 'gpt2', 'lstm', 'cell']:
    if name == 'resnet':
        row('resnet50 b128 fp32', resnet('fp32'), warm=3, n=5)
        row('resnet50 b128 fp16', resnet('fp16'), warm=5, n=10)
        row('resnet50 b128 fp16 captured', resnet('fp16', graph=True), warm=5, n=10)
    if name == 'gpt2':
        row('gpt2-124M 16x1024 bf16', gpt2('bf16'), warm=3, n=5)
        row('gpt2-124M 16x1024 bf16 captured', gpt2('bf16', graph=True), warm=3, n=5)
        row('gpt2-124M 16x1024 bf16 compiled', gpt2('bf16', compiled=True), warm=3, n=5)
        row('gpt2-124M 16x1024 fp16', gpt2('fp16'), warm=3, n=5)
    if name == 'lstm':
        row('LSTM 2x512 T64 B64 fp16', lstm('fp16'))
        row('LSTM 2x512 T64 B64 fp16 captured', lstm('fp16', graph=True))
    if name == 'cell':
        row('LSTMCell loop 512 T64 B64 fp16', cell('fp16'), n=10)
        row('LSTMCell loop 512 T64 B64 fp16 captured', cell('fp16', graph=True), n=10)
