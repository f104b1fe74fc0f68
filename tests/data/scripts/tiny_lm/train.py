"""Trains a small language model on random text: accumulation, clipping, warm-up, evaluation on the way."""

import math
import sys

import torch
from language_model import LanguageModel
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

accumulation = int(sys.argv[1]) if len(sys.argv) > 1 else 1
batch_size, context, epochs, evaluate_every = 4, 24, 3, 5
torch.manual_seed(1337)
text = torch.randint(96, (40, context + 1))
train_loader = DataLoader(TensorDataset(text[:32]), batch_size=batch_size, shuffle=True, drop_last=True)
valid_loader = DataLoader(TensorDataset(text[32:]), batch_size=batch_size)
model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))


def loss_of(tokens):
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def evaluate():
    model.eval()
    losses = [loss_of(tokens).item() for (tokens,) in valid_loader]
    model.train()
    return sum(losses) / len(losses)


seen = 0
for epoch in range(epochs):
    for place, (tokens,) in enumerate(train_loader):
        loss = loss_of(tokens) / accumulation
        loss.backward()
        if (place + 1) % accumulation:
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        seen += 1
        if not math.isfinite(loss.item()):
            raise SystemExit("the loss is not finite")
        if seen % evaluate_every == 0:
            print(f"epoch {epoch} step {seen} loss {loss.item():.3f} held out {evaluate():.3f}")
