"""Trains with the Trainer of Hugging Face Transformers.

    pip install transformers accelerate
    fastconv pack IMAGES train.lmdb
    python examples/train_hf_trainer.py train.lmdb --val val.lmdb --steps 200

The Trainer makes DataLoaders of its own, with worker processes, for which a pack is a Dataset like
any other; a collator gives batches the names that models expect. The model is a small ResNet that
begins from nothing, so that nothing is downloaded. Started again, it goes on after the last
checkpoint: the Trainer leaves out as many batches as it had, and reads none of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

from fastconv.loaders import CenterCrop, RandomResizedCrop, collate, open_dataset

__all__ = ["accuracy", "batch_of", "main"]

MEAN, STD = (torch.tensor(v) * 255 for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def batch_of(samples: list[Any]) -> dict[str, torch.Tensor]:
    """Returns a batch of (image, label) pairs under the names that models expect."""
    images, labels = collate(samples)  # uint8: a decoder's images lie side by side already
    pixels = (images - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)
    return {"pixel_values": pixels, "labels": labels}


def accuracy(prediction: Any) -> dict[str, float]:
    """Returns the share of the images that are told right, of an EvalPrediction."""
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"accuracy": float(right.mean())}


def main(argv: Sequence[str] | None = None) -> None:
    """Trains, and prints the accuracy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path, help="what to train on")
    parser.add_argument("--val", type=Path, required=True, help="what to measure accuracy on")
    parser.add_argument("--out", type=Path, default=Path("run"), help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="in all (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images in one (%(default)s)")
    parser.add_argument("--size", type=int, default=224, help="of a crop (%(default)s)")
    parser.add_argument("--save-every", type=int, default=50, help="steps (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    args = parser.parse_args(argv)
    train = open_dataset(args.pack, decode=RandomResizedCrop(args.size, flip=0.5))
    val = open_dataset(args.val, decode=CenterCrop(args.size, resize=args.size * 8 // 7))
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic",
        id2label=dict(enumerate(train.classes)), label2id=train.class_to_idx,
    )  # fmt: skip
    trainer = Trainer(
        model=ResNetForImageClassification(config),
        args=TrainingArguments(
            output_dir=str(args.out), max_steps=args.steps, save_steps=args.save_every,
            per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch,
            dataloader_num_workers=args.workers, dataloader_pin_memory=torch.cuda.is_available(),
            logging_steps=args.save_every, learning_rate=1e-3, remove_unused_columns=False,
            report_to="none",
        ),
        train_dataset=train,
        eval_dataset=val,
        data_collator=batch_of,
        compute_metrics=accuracy,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=any(args.out.glob("checkpoint-*")))
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()
