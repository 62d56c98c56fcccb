"""Small models of `transformers`, built and saved by tests: no hub is reached."""

from pathlib import Path
from typing import Any

import pytest

TEXT = (
    "a an the good bad film movie story is was very really dull fine this that not and it of in man woman dog cat "
    "runs walks down street with his her great terrible i loved hated every minute , . !"
)
WORDS = TEXT.split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def transformers() -> Any:
    """Return the package, or skip the test."""
    return pytest.importorskip("transformers", reason="needs the package transformers (the extra `text`)")


def tokenizer(folder: Path, words: list[str] = WORDS) -> Any:
    """Save a tokenizer of whole words, in the manner of BERT."""
    kit = transformers()
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    numbers = {word: number for number, word in enumerate([*SPECIAL, *dict.fromkeys(words)])}
    made = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])],
    )
    wrapped = kit.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", eos_token="[SEP]", model_max_length=32,
    )  # fmt: skip
    wrapped.save_pretrained(folder)
    return wrapped


def bert(folder: Path, kind: str, **options: Any) -> Any:
    """Save a small BERT, such as BertForSequenceClassification, with random weights and its tokenizer."""
    import torch

    kit = transformers()
    words = tokenizer(folder)
    torch.manual_seed(0)
    config = kit.BertConfig(vocab_size=len(words), max_position_embeddings=32, **SMALL, **options)
    model = getattr(kit, kind)(config).eval()
    model.save_pretrained(folder)
    return model


def translator(folder: Path) -> Any:
    """Save a small model of sequences to sequences, with random weights and its tokenizer."""
    import torch

    kit = transformers()
    words = tokenizer(folder)
    torch.manual_seed(0)
    numbers = {name: words.convert_tokens_to_ids(f"[{name}]") for name in ("PAD", "CLS", "SEP")}
    config = kit.BartConfig(
        vocab_size=len(words), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32,
        pad_token_id=numbers["PAD"], bos_token_id=numbers["CLS"], eos_token_id=numbers["SEP"],
        decoder_start_token_id=numbers["SEP"], forced_eos_token_id=None,
    )  # fmt: skip
    model = kit.BartForConditionalGeneration(config).eval()
    model.generation_config.forced_eos_token_id = numbers["SEP"]
    model.save_pretrained(folder)
    return model
