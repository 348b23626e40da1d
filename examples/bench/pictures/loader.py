"""PyTorch's twin of loader.lua: torchvision's ImageFolder and transforms, a DataLoader."""
import sys
import time

import torch
from torchvision import datasets, transforms


def main():
    o = {'workers': 0, 'epochs': 3, 'batch': 32, 'size': 224}
    for word in sys.argv[2:]:
        name, value = word.split('=')
        o[name] = int(value)
    torch.set_num_threads(1)
    transform = transforms.Compose([
        transforms.RandomResizedCrop(o['size']), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    data = datasets.ImageFolder(sys.argv[1], transform)
    loader = torch.utils.data.DataLoader(data, batch_size=o['batch'], shuffle=True, num_workers=o['workers'])
    best = 0
    for _ in range(o['epochs']):
        start, n = time.perf_counter(), 0
        for x, _ in loader:
            n += x.shape[0]
        best = max(best, n / (time.perf_counter() - start))
    print('torchvision  workers %d: %7.1f pictures/s' % (o['workers'], best))


if __name__ == '__main__':
    main()
