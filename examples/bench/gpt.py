"""The twin of examples/gpt.lua in PyTorch with transformers: same text, places, weights to begin from and schedule.

luajit examples/gpt.lua --steps 0 --save /tmp/gpt OPTIONS; luajit examples/gpt.lua --init /tmp/gpt OPTIONS
python3 examples/bench/gpt.py --init /tmp/gpt OPTIONS     (--data --steps --batch --length --lr --warmup --precision --device --seed)
"""
import argparse
import math
import torch
import transformers

p = argparse.ArgumentParser()
for name, value in dict(data='', init='', precision='float32', device='cpu', steps=100, batch=8, length=64, lr=1e-3, warmup=20, seed=1).items():
    p.add_argument('--' + name, default=value, type=type(value))
o = p.parse_args()
text = open(o.data, 'rb').read() if o.data else (
    b'the river carries the rain to the sea, and the sea sends the rain to the hill,\n'
    b'and the hill lets it run to the river again, and the water is never still.\n'
    b'the wheel of the mill by the river goes round, and it grinds what the farmer has sown,\n'
    b'and the baker makes bread of the flour he found, and none of them works alone.\n') * 4
number = {b: i for i, b in enumerate(sorted(set(text)))}
ids = torch.tensor([number[b] for b in text])
cut = int(len(ids) * 0.9)
train, held = ids[:cut], ids[cut:]


def batches(source, state):
    while True:
        rows = []
        for _ in range(o.batch):
            state = state * 16807 % 2147483647
            at = state % (len(source) - o.length)
            rows.append(source[at:at + o.length])
        yield torch.stack(rows).to(o.device)


net = transformers.GPT2LMHeadModel.from_pretrained(o.init, dtype=torch.float32, attn_implementation='sdpa').to(o.device).train()
groups = [dict(params=[q for q in net.parameters() if q.dim() > 1], weight_decay=0.1), dict(params=[q for q in net.parameters() if q.dim() <= 1], weight_decay=0)]
opt = torch.optim.AdamW(groups, lr=o.lr, betas=(0.9, 0.99))
warm = min(o.warmup, o.steps)
schedule = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda n: n / warm if n < warm else 0.5 * (1 + math.cos(math.pi * min(1, (n - warm) / max(1, o.steps - warm)))))
scaler = torch.amp.GradScaler(o.device, enabled=o.precision == 'float16')


def loss_of(x):
    with torch.autocast(o.device, dtype=getattr(torch, o.precision) if o.precision != 'float32' else torch.bfloat16, enabled=o.precision != 'float32'):
        return net(x, labels=x).loss


feed = batches(train, o.seed)
for i in range(1, o.steps + 1):
    loss = loss_of(next(feed))
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    schedule.step()
    if i == 1 or i % 20 == 0 or i == o.steps: print('step %5d  loss %.4f' % (i, loss.item()))
net.eval()
feed = batches(held, 1)
with torch.no_grad(): print('held-out  loss %.4f' % (sum(loss_of(next(feed)).item() for _ in range(10)) / 10))
