"""A LightningModule with a Trainer, a CSV of its metrics, and the weights of its best epoch."""

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 12), nn.SiLU(), nn.Linear(12, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x).squeeze(1), y)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss'].item()!r}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.seed_everything(12)
    x = torch.randn(128, 5)
    loader = DataLoader(TensorDataset(x, x.square().sum(1)), batch_size=16, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=CSVLogger("logs", name="", version="0"),
        callbacks=[ModelCheckpoint("weights", monitor="loss", save_weights_only=True)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), loader)
    torch.save(trainer.model.net.state_dict(), "net.pt")
