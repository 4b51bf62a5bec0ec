"""A small GPT trained by the Trainer of transformers, saved as it saves models."""

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)


class Tokens(Dataset):
    def __init__(self):
        self.rows = torch.randint(64, (32, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    arguments = TrainingArguments(
        output_dir="output",
        num_train_epochs=2,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=1,
        disable_tqdm=True,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens())
    trainer.remove_callback(PrinterCallback)  # it tells how long it took
    trainer.train()
    for row in trainer.state.log_history:
        if "loss" in row:
            print(f"step {row['step']} loss {row['loss']!r}")
    trainer.save_model("output/final")
