"""The public `ModelSpec`: a declarative entry and what derives from its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from rooflinellm.specs.common import Source
from rooflinellm.specs.formats import Encodings, packaged_encodings
from rooflinellm.specs.model import Attention, Block, CompressedAttention, LatentAttention, ModelEntry
from rooflinellm.units import GIGA

from .cache import CacheTypes
from .graph import block_operators, end_operators
from .layers import block_tensors, embedding_tensors, head_tensors, mtp_tensors
from .recipe import ModelTraits, traits_of
from .stored import check
from .tensors import Tensor

MXFP4_EXPERTS = "hf:mxfp4"
"""Published format of models whose experts alone are in MXFP4."""


@dataclass(frozen=True, repr=False)
class ModelSpec:
    """A model: its declarative entry, plus the counts that derive from it.

    Nothing is stored that can be derived: every count is a sum over the tensors of `operators.layers`.

    Attributes
    ----------
    entry : ModelEntry
        What the file says.
    encodings : Encodings, optional
        The table of encodings for KV types; the packaged one where absent.

    Raises
    ------
    UnsupportedModel
        The entry comes from a file and derives other tensors than the file holds.
    """

    entry: ModelEntry
    encodings: Encodings | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.entry.file is not None:
            check(self.entry, self.entry.file)

    def __hash__(self) -> int:
        return hash(self.entry.id)  # an entry holds a dictionary, which has no hash

    def __repr__(self) -> str:
        total, active = self.total_params / GIGA, self.active_params / GIGA
        return (
            f"ModelSpec({self.id!r}, {self.entry.layer_count} layers, {total:.3g} B parameters, {active:.3g} B active)"
        )

    @property
    def id(self) -> str:
        """Identifier: the file's name."""
        return self.entry.id

    @property
    def name(self) -> str:
        """Name for people."""
        return self.entry.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names, Hugging Face repositories among them."""
        return self.entry.aliases

    @property
    def family(self) -> str:
        """Family: the folder's name."""
        return self.entry.family

    @property
    def hidden(self) -> int:
        """Hidden size. [-]"""
        return self.entry.hidden

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding and of the head. [token]"""
        return self.entry.vocabulary

    @property
    def tied_embeddings(self) -> bool:
        """Whether the head is the input embedding."""
        return self.entry.tied_embeddings

    @property
    def max_context_tokens(self) -> int:
        """Longest context the model is made for. [token]"""
        return self.entry.max_context_tokens

    @property
    def native_format(self) -> str:
        """Format in which the maker publishes the weights."""
        return self.entry.native_format

    @property
    def sources(self) -> dict[str, Source]:
        """Where the facts come from."""
        return self.entry.sources

    @cached_property
    def layers(self) -> tuple[Block, ...]:
        """The layers in order, written out."""
        return tuple(self.entry.blocks())

    @cached_property
    def layer_tensors(self) -> tuple[tuple[Tensor, ...], ...]:
        """The tensors of each layer, in order."""
        tensors: list[tuple[Tensor, ...]] = []
        for group in self.entry.layers:
            tensors += [block_tensors(block, self.hidden) for block in group.pattern] * group.repeat
        return tuple(tensors)

    @cached_property
    def total_params(self) -> int:
        """Parameters of the text model, a tied head once. [-]"""
        ends = embedding_tensors(self.entry) + head_tensors(self.entry)
        return _params(ends) + sum(count * _params(block_tensors(block, self.hidden)) for block, count in self._counted)

    @cached_property
    def mtp_params(self) -> int:
        """Parameters of the multi-token-prediction module, 0 without one; resident only where it drafts. [-]"""
        return _params(mtp_tensors(self.entry))

    @cached_property
    def active_params(self) -> int:
        """Parameters each token is multiplied by. [-]

        Attention, feed-forward, router, shared and k routed experts, and the head once; neither the lookup of the input
        embedding nor vectors (norms, biases, sinks).
        """
        ends = sum(operator.active_params for operator in end_operators(self.entry))
        return ends + sum(
            count * operator.active_params
            for block, count in self._counted
            for operator in block_operators(block, self.hidden)
        )

    @cached_property
    def traits(self) -> ModelTraits:
        """What a weight format may ask about the model."""
        return traits_of(
            self.layer_tensors,
            gqa=self._gqa,
            tied_embeddings=self.tied_embeddings,
            mxfp4_experts=self.native_format == MXFP4_EXPERTS,
        )

    def kv_bytes_per_token(self, kv: str = "f16") -> int:
        """KV cache of one token, over all layers of a context that is still growing.

        The sum over layers, with H_kv key/value heads, of

            H_kv * (d_k * b_k + d_v * b_v)

        or of a latent, (r_kv + rope) * b_k, and of an indexer's keys. Recurrent layers, and layers that read another
        layer's cache, add nothing. A layer with a sliding window counts here too: its share is that of a context
        still within the window.

        Parameters
        ----------
        kv : str
            Type of the cache, or ``K/V`` where keys and values differ: ``f16``, ``q8_0``, ``q8_0/f16``.

        Returns
        -------
        int
            [byte]

        Raises
        ------
        InvalidRequest
            A type that is not in the table.

        References
        ----------
        Shazeer (2019), "Fast Transformer Decoding: One Write-Head is All You Need", section 3.
        """
        types = CacheTypes.parse(kv, self.encodings or packaged_encodings())
        return sum(
            count * types.token_bytes(operator.mixing.cache)
            for block, count in self._counted
            for operator in block_operators(block, self.hidden)
            if operator.mixing is not None and operator.mixing.owned
        )

    @property
    def _gqa(self) -> int:
        """Query heads to a key/value head of the first attention layer; latent attention has a single key for all."""
        for block in self.layers:
            for mixer in block.mixers:
                if isinstance(mixer, Attention):
                    return mixer.heads // mixer.kv_heads
                if isinstance(mixer, LatentAttention | CompressedAttention):
                    return mixer.heads
        return 1

    @cached_property
    def _counted(self) -> tuple[tuple[Block, int], ...]:
        """Blocks as the file writes them and how often each occurs, so that a hundred equal layers are derived once."""
        return tuple((block, group.repeat) for group in self.entry.layers for block in group.pattern)


def _params(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.params for tensor in tensors)
