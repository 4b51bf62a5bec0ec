"""Linear regression with the Trainer of Hugging Face."""

import json

import torch
from gate import STEPS, finish, passed, restored, save
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)
step, content = restored()


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1, bias=False)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}


class Gate(TrainerCallback):
    def on_step_end(self, args, state, _control, **_more):
        now = step + state.global_step
        if args.process_index == 0:
            save(now, json.dumps(model.layer.weight.tolist()))
        passed(now, args.process_index)


model = Regression()
if content:
    model.layer.weight.data = torch.tensor(json.loads(content))
x = torch.randn(64, 3)
arguments = TrainingArguments(
    output_dir="trainer",
    use_cpu=True,
    max_steps=STEPS - step,
    per_device_train_batch_size=16,
    learning_rate=0.05,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
assert arguments.world_size == 2
data = [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]
if step < STEPS:
    Trainer(model, arguments, train_dataset=data, callbacks=[Gate()]).train()
finish(arguments.process_index, json.dumps(model.layer.weight.tolist()))
torch.distributed.destroy_process_group()  # else its threads may abort the process at its very end
