"""A language model of characters: an LSTM, truncated steps, and a sample of what it has learned."""

import json
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
text = (HERE / "corpus" / "input.txt").read_text()
letters = sorted(set(text))
number_of = {letter: number for number, letter in enumerate(letters)}
stream = torch.tensor([number_of[each] for each in text])
torch.manual_seed(2)


class Model(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.embedding = nn.Embedding(len(letters), size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.head = nn.Linear(size, len(letters))

    def forward(self, x, state=None):
        out, state = self.lstm(self.embedding(x), state)
        return self.head(out), state


model = Model()
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
for step in range(40):
    start = torch.randint(len(stream) - 65, (8,))
    batch = torch.stack([stream[each : each + 65] for each in start])
    logits, _ = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item()!r}")

out = HERE / "out"
out.mkdir(exist_ok=True)
torch.save(model.state_dict(), out / "lstm.pt")
(out / "vocabulary.json").write_text(json.dumps(number_of))
with torch.no_grad():
    x, state, sample = torch.zeros(1, 1, dtype=torch.long), None, []
    for _ in range(60):
        logits, state = model(x, state)
        x = torch.multinomial(logits[:, -1].softmax(-1), 1)
        sample.append(letters[x.item()])
(out / "sample.txt").write_text("".join(sample))
