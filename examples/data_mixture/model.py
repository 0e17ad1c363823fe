"""A GPT that reads bytes: GPT-2 of ``transformers`` from a random start, in three sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {"tiny": (2, 64, 2), "10M": (8, 320, 5), "124M": (13, 896, 14)}
"""Layers, width and heads: 12 layers width^2 parameters, beside the embeddings."""
BYTES = 256
"""The vocabulary."""
CONTEXT = 1024
"""The most bytes that are read at once."""


class ByteGPT(nn.Module):
    """Maps windows of text to the mean loss of the next byte, a number for each row.

    Args:
        layers: the number of blocks.
        width: of the stream between them.
        heads: of attention.
    """

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=BYTES,
            n_positions=CONTEXT,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
            tie_word_embeddings=False,  # a table of 256 bytes is small, and every parameter has one name
        )
        config._attn_implementation = "sdpa"
        self.gpt = GPT2LMHeadModel(config)

    @property
    def blocks(self) -> nn.ModuleList:
        """The layers, as ``fully_shard`` wants them one by one."""
        return self.gpt.transformer.h

    def forward(self, tokens: Tensor) -> Tensor:
        """The mean loss of each row of windows (batch, length + 1), in nats a byte."""
        tokens = tokens.long()
        logits = self.gpt(tokens[:, :-1]).logits.float()
        return cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)


def gpt(size: str, seed: int = 0) -> ByteGPT:
    """A network of a size in :data:`SIZES`, whose random start is chosen by the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ByteGPT(*SIZES[size])
