"""Linear regression with Lightning: a step an epoch would be, and its weights the checkpoint."""

import json

import lightning.pytorch as pl
import torch
from gate import STEPS, finish, passed, restored, save

torch.set_num_threads(1)
step, content = restored()


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1, bias=False)
        if content:
            self.layer.weight.data = torch.tensor(json.loads(content))

    def training_step(self, batch, _number):
        (x,) = batch
        return torch.nn.functional.mse_loss(self.layer(x), x.sum(1, keepdim=True))

    def on_train_batch_end(self, _outputs, _batch, number):
        now = step + number + 1
        if self.global_rank == 0:
            save(now, json.dumps(self.layer.weight.tolist()))
        passed(now, self.global_rank)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


data = torch.utils.data.TensorDataset(torch.randn(16 * 2 * (STEPS - step), 3))
trainer = pl.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=2,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
module = Regression()
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16))
assert trainer.world_size == 2
finish(trainer.global_rank, json.dumps(module.layer.weight.tolist()))
