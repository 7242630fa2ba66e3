"""The key/value cache: bytes of one token in one layer, by type."""

from __future__ import annotations

from dataclasses import dataclass

from rooflinellm.errors import InvalidRequest
from rooflinellm.specs.formats import Encoding, Encodings
from rooflinellm.specs.model import Attention, CompressedAttention, CompressedLatents, Indexer, LatentAttention

INDEXER_SCALE_BYTES = 4


CacheShape = Attention | LatentAttention | CompressedAttention | Indexer


@dataclass(frozen=True, slots=True)
class CacheTypes:
    """Types of cached keys and values.

    Attributes
    ----------
    names : tuple of str
        Canonical names of the key and the value type.
    key, value : Encoding
        Their encodings.
    """

    names: tuple[str, str]
    key: Encoding
    value: Encoding

    @classmethod
    def parse(cls, text: str, encodings: Encodings) -> CacheTypes:
        """Read ``f16``, or ``q8_0/f16`` where keys and values differ.

        Raises
        ------
        InvalidRequest
            A type that is not in the table.
        """
        canonical = {name: known for known, kv_type in encodings.kv_types.items() for name in (known, *kv_type.aliases)}
        asked = [part.strip().lower() for part in text.split("/")]
        if not 1 <= len(asked) <= 2 or not all(name in canonical for name in asked):
            raise InvalidRequest(
                f"'{text}' is no cache type; allowed: {', '.join(sorted(canonical))}, or a pair such as q8_0/f16",
                where="kv",
            )
        key, value = canonical[asked[0]], canonical[asked[-1]]
        table = encodings.encodings
        return cls((key, value), table[encodings.kv_types[key].encoding], table[encodings.kv_types[value].encoding])

    @property
    def name(self) -> str:
        """As it is written: one name, or ``K/V``."""
        key, value = self.names
        return key if key == value else f"{key}/{value}"

    def token_bytes(self, shape: CacheShape, *, expanded: bool = False) -> int:
        """Bytes that one token takes in the cache of one layer; a block begun counts whole.

        Grouped heads take H_kv (d_k b_k + d_v b_v), a latent (r_kv + rope) b_k, once for keys and values; expanded, as
        engines without latent kernels store it, H ((nope + rope) b_k + v b_v). An indexer's key is in FP8 with one
        32-bit scale. Compressed attention caches a key once for both, within its window for each token, beyond it one
        for several tokens, of which each has its share, rounded up.

        Parameters
        ----------
        shape : Attention, LatentAttention, CompressedAttention or Indexer
            The layer's shape.
        expanded : bool
            Latents are stored expanded.

        Returns
        -------
        int
            [byte]
        """
        match shape:
            case Indexer():
                return -(-(shape.head_dim + INDEXER_SCALE_BYTES) // shape.ratio)
            case CompressedLatents():
                return -(-_packed(shape.latent_dim, self.key) // shape.ratio)
            case CompressedAttention():
                return _packed(shape.head_dim, self.key)
            case LatentAttention() if expanded:
                keys = shape.heads * (shape.nope_dim + shape.rope_dim)
                return _packed(keys, self.key) + _packed(shape.heads * shape.v_head_dim, self.value)
            case LatentAttention():
                return _packed(shape.latent_dim, self.key)
            case Attention():
                keys = _packed(shape.kv_heads * shape.head_dim, self.key)
                return keys + _packed(shape.kv_heads * shape.value_dim, self.value)


def _packed(elements: int, encoding: Encoding) -> int:
    return -(-elements // encoding.block_elements) * encoding.block_bytes
