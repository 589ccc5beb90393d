"""PyTorch without an engine: one file with model, optimizer, epoch and loss; load and continue."""

import torch
import torch.nn as nn


class SimpleModel(nn.Module):
    def __init__(self):
        super(SimpleModel, self).__init__()
        self.fc = nn.Linear(10, 2)

    def forward(self, x):
        return self.fc(x)


model = SimpleModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)


def step():
    optimizer.zero_grad()
    model(torch.linspace(0, 1, 10)).square().sum().backward()
    optimizer.step()


step()

checkpoint_path = "model_checkpoint.pth"
torch.save(
    {
        "epoch": 10,
        "model_state_dict": model.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "loss": 0.02,
    },
    checkpoint_path,
)

step()
undisturbed = model.fc.weight.detach().clone()
model = SimpleModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

checkpoint = torch.load("model_checkpoint.pth")
model.load_state_dict(checkpoint["model_state_dict"])
optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
epoch = checkpoint["epoch"]
loss = checkpoint["loss"]

step()
print("epoch", epoch, "loss", loss, "same weights:", torch.equal(model.fc.weight, undisturbed))
