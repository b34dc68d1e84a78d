"""BERT and GPT-2 of ``transformers``, with random weights and without dropout, which would differ between engines."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel


class Bert(nn.Module):
    """A classifier of token sequences; the sizes are BERT-base's."""

    def __init__(
        self, layers: int = 4, width: int = 768, heads: int = 12, vocabulary: int = 30522, classes: int = 2
    ) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=classes,
            attn_implementation="sdpa",
        )
        self.model = BertForSequenceClassification(config)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=tokens, attention_mask=mask, return_dict=False)[0]


class GPT2(nn.Module):
    """Scores of the next token, [batch · length, vocabulary]; the output embedding is tied to the input embedding."""

    def __init__(
        self, layers: int = 2, width: int = 768, heads: int = 12, vocabulary: int = 50257, length: int = 256
    ) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=vocabulary,
            n_positions=max(length, 1024),
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="sdpa",
        )
        self.model = GPT2LMHeadModel(config)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = torch.ones_like(tokens)  # without one, the exporter meets a search for packed sequences
        scores = self.model(tokens, attention_mask=mask, use_cache=False, return_dict=False)[0]
        return scores.reshape(-1, scores.shape[-1])
