"""A small masked language model, trained on a list of texts, for NI-SSMBA where no pretrained one is to be had."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONGEST = 256
"""Tokens the model reads at most."""


def masked_model(
    folder: Path, texts: Sequence[str], *, steps: int, vocabulary: int = 6000, device: str = "cpu", seed: int = 0
) -> Path:
    """Return the folder of a masked language model, which is trained and saved if it is not there."""
    import transformers

    if (folder / "config.json").is_file():
        return folder
    transformers.utils.logging.disable_progress_bar()
    tokenizer = _tokenizer(texts, vocabulary)
    torch.manual_seed(seed)
    # Attention to the words nearby and large first weights: with BERT's own, a model this small does not get beyond the
    # frequencies of words in a minute.
    pad = tokenizer.pad_token_id
    model = transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=96, max_position_embeddings=LONGEST, local_attention=16, global_attn_every_n_layers=2,
            initializer_range=0.1, initializer_cutoff_factor=3.0, pad_token_id=pad, bos_token_id=pad, eos_token_id=pad,
            cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id,
        )
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rng = np.random.default_rng(seed)
    began = time.process_time()
    losses: list[float] = []
    for step in range(1, steps + 1):
        chosen = [texts[place] for place in rng.integers(len(texts), size=32).tolist()]
        batch = tokenizer(chosen, padding=True, truncation=True, max_length=64, return_tensors="pt").to(device)
        ids = batch["input_ids"]
        masked = (torch.from_numpy(rng.random(ids.shape)).to(device) < 0.15) & (ids >= len(MARKS))
        there = batch["attention_mask"]
        seen = model.model(ids.masked_fill(masked, tokenizer.mask_token_id), there).last_hidden_state
        scores = model.decoder(model.head(seen[masked]))  # of masked places alone, a seventh of them
        loss = F.cross_entropy(scores, ids[masked])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 250 == 0:
            recent = np.mean(losses[-100:])
            print(f"masked model: step {step}, loss {recent:.2f}, {time.process_time() - began:.0f} s", flush=True)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    """Return a tokenizer into the pieces of words that are most frequent in the texts."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    inside = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inside.normalizer = normalizers.BertNormalizer()
    inside.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inside.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=list(MARKS), show_progress=False)
    inside.train_from_iterator(texts, trainer)
    # The trainer numbers equally frequent pieces in another order every time; in that of the alphabet, the same seed
    # gives the same model.
    pieces = [*MARKS, *sorted(inside.get_vocab().keys() - set(MARKS))]
    inside.model = models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    inside.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(mark, inside.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inside, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=LONGEST,
    )  # fmt: skip
