"""Trains a small residual network on random pictures."""

import argparse

import torch
from picturenet import PictureNet, RandomPictures
from torch import nn
from torch.utils.data import DataLoader


def train(args, model, device, loader, criterion, optimizer, epoch):
    model.train()
    running_loss, correct = 0.0, 0
    for batch_idx, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        output = model(images)
        loss = criterion(output, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        correct += (output.argmax(dim=1) == labels).sum().item()
        if batch_idx % args.log_interval == 0:
            print(f"epoch {epoch} [{batch_idx * len(images)}/{len(loader.dataset)}] loss {loss.item():.4f}")


def test(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
    print(f"accuracy {correct / len(loader.dataset):.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--samples", type=int, default=250)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(
        RandomPictures(args.samples), batch_size=args.batch_size, shuffle=True, num_workers=args.workers
    )
    test_loader = DataLoader(RandomPictures(64), batch_size=32)
    model = PictureNet().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, criterion, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
    torch.save(model.state_dict(), "pictures.pt")


if __name__ == "__main__":
    main()
