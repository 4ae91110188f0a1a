"""Use an objective with the trainer of sentence-transformers
==========================================================

    python examples/trainer_of_sentence_transformers.py
    torchrun --nproc_per_node 2 examples/trainer_of_sentence_transformers.py

The loss holds the model, as the losses of sentence-transformers do, and calls an objective of nearfar. Sentences on the
same subject share words, and the model, a mean of token embeddings, starts from random weights. A sampler of nearfar,
which knows the processes, draws the batches, and the trainer uses the loader without changes. Both commands train the
same weights. The script takes about 20 seconds on one core, and needs sentence-transformers, datasets and accelerate.

With several processes, the trainer averages the gradients of the model only. Class proxies would each get the gradient
of one process, so train objectives with proxies in a single one.
"""

# sphinx_gallery_thumbnail_path = "pictures/trainer_of_sentence_transformers.svg"

import os
import tempfile

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, set_seed

from nearfar import MPerClassSampler, MultiSimilarityLoss
from nearfar.evaluation import recall_at_k

SUBJECTS = 24
OWN_WORDS = 12  # of a subject
COMMON_WORDS = 40
SENTENCES = 20  # on a subject


class ObjectiveLoss(nn.Module):
    """An objective of nearfar as a loss of sentence-transformers: sentences with the numbers of their classes."""

    def __init__(self, model, objective):
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, sentence_features, labels):
        (sentences,) = sentence_features
        return self.objective(self.model(sentences)["sentence_embedding"], labels)


class ClassTrainer(SentenceTransformerTrainer):
    """A trainer whose batches hold some sentences of each of some classes."""

    def get_train_dataloader(self):
        batches = MPerClassSampler(self.train_dataset["label"], m=4, batch_size=32, rounds=None)
        return DataLoader(self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator)


def sentences():
    """Return sentences of three words of their subject and five common ones, and the subjects."""
    rng = np.random.default_rng(0)
    texts = []
    subjects = np.repeat(np.arange(SUBJECTS), SENTENCES)
    for subject in subjects:
        own = [f"word{subject * OWN_WORDS + number}" for number in rng.choice(OWN_WORDS, 3, replace=False)]
        common = [f"common{number}" for number in rng.choice(COMMON_WORDS, 5, replace=False)]
        texts.append(" ".join(rng.permutation([*own, *common])))
    return texts, subjects


def make_model(texts):
    """Return a model without weights whose tokens are the words of the texts."""
    words = sorted({word for text in texts for word in text.split()})
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")


def recall(model, texts, subjects):
    """Return the share of sentences whose nearest other one is on the same subject."""
    return recall_at_k(model.encode(texts, show_progress_bar=False), subjects, 1)


def main():
    set_seed(0)
    backend = "gloo" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
    texts, subjects = sentences()
    model = make_model(texts)
    before = recall(model, texts, subjects)
    data = Dataset.from_dict({"sentence": texts, "label": subjects})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            max_steps=60,
            logging_steps=1,
            learning_rate=0.1,
            use_cpu=True,
            ddp_backend=backend,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        loss = ObjectiveLoss(model, MultiSimilarityLoss())
        trainer = ClassTrainer(model, arguments, train_dataset=data, loss=loss)
        trainer.remove_callback(PrinterCallback)  # which prints a line for every step
        trainer.train()
    log = [record for record in trainer.state.log_history if "grad_norm" in record]
    if trainer.is_world_process_zero():
        print(f"value of the first step: {log[0]['loss']:.5f}")
        print(f"length of its gradient: {log[0]['grad_norm']:.5f}")
        print(f"value of the last step: {log[-1]['loss']:.5f}")
        print(f"Recall@1 before and after: {before:.3f} {recall(model, texts, subjects):.3f}")


if __name__ == "__main__":
    main()
