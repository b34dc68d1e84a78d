"""Models of token sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

CLASSES = 5
VOCABULARY = 30
LENGTH = 7


def tokens(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Tokens, one label for each sequence."""
    sequences = torch.randint(VOCABULARY, (batch, LENGTH), generator=generator)
    return (sequences,), torch.randint(CLASSES, (batch,), generator=generator)


def masked_tokens(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Tokens of sequences of different length and their mask, one label for each sequence."""
    (sequences,), labels = tokens(generator, batch)
    lengths = torch.arange(batch) % (LENGTH - 2) + 3
    return (sequences, (torch.arange(LENGTH) < lengths[:, None]).long()), labels


def next_tokens(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Tokens, one label for each token."""
    (sequences,), _ = tokens(generator, batch)
    return (sequences,), torch.randint(VOCABULARY, (batch, LENGTH), generator=generator)


class Classifier(nn.Module):
    """The logits of a sequence classifier of ``transformers``, alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


class LanguageModel(nn.Module):
    """The logits of a causal language model of ``transformers``, classes on axis 1 as cross-entropy takes them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        mask = torch.ones_like(input_ids)  # without one, the exporters meet a search for packed sequences
        return self.model(input_ids, attention_mask=mask, use_cache=False, return_dict=False)[0].transpose(1, 2)


def distilbert() -> nn.Module:
    """DistilBERT: learned positions, post-norm, GELU, padding mask."""
    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        n_layers=2,
        n_heads=2,
        dim=16,
        hidden_dim=24,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        num_labels=CLASSES,
        attn_implementation="eager",
    )
    return Classifier(DistilBertForSequenceClassification(config))


def gpt2() -> nn.Module:
    """GPT-2: pre-norm, tanh-GELU, causal mask, output embedding tied to the input embedding."""
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="eager",
    )
    return LanguageModel(GPT2LMHeadModel(config))


def llama(attention: str = "eager") -> nn.Module:
    """Llama: RMSNorm, rotary positions, SwiGLU, grouped key and value heads; ``attention`` as for ``vision.vit``."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        attn_implementation=attention,
    )
    return LanguageModel(LlamaForCausalLM(config))


class LSTMClassifier(nn.Module):
    """An embedding, a bidirectional LSTM, and a dense layer on both final states."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, input_ids: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.embedding(input_ids))
        return self.head(torch.cat([hidden[0], hidden[1]], 1))
