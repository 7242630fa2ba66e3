"""Layers of a GGUF file: what its keys and tensors make of each, and which class each tensor belongs to.

Widths come from shapes and counts from keys; what neither says (windows, gates) is in `gguf_architectures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rooflinellm.errors import UnreadableFile, UnsupportedModel, met
from rooflinellm.importers.gguf import GgufHeader, GgufTensor, Skipped, Value
from rooflinellm.importers.gguf_architectures import Architecture, Use
from rooflinellm.importers.pieces import Piece, cut
from rooflinellm.specs.model import (
    FFN,
    Attention,
    Block,
    DeltaNet,
    ExtraTensor,
    GatedFFN,
    Indexer,
    KimiDelta,
    LatentAttention,
    Mamba,
    Mamba2,
    Mixer,
    MixtureOfExperts,
    NoFFN,
    NoMixer,
    PlainFFN,
    ShortConvolution,
)

_SCALES = (".scale", ".input_scale")
_NORMS = (
    "attn_norm",
    "ffn_norm",
    "post_attention_norm",
    "post_ffw_norm",
    *("attn_norm_2", "attn_output_norm", "layer_output_norm", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"),
    *("post_norm", "laurel_post_norm", "altup_router_norm"),
)
"""Norm vectors of the hidden size; `operators.layers` names the first four, and numbers those behind them."""


@dataclass(frozen=True)
class Keys:
    """The keys of a header, with their types checked; `arch.` stands before all but the general ones."""

    header: GgufHeader
    architecture: str

    def fault(self, key: str, message: str) -> UnreadableFile:
        return UnreadableFile(f"key {key}: {message}", where=str(self.header.path))

    def raw(self, key: str) -> tuple[str, Value | None]:
        """Full name and value; None where there is none."""
        full = f"{self.architecture}.{key}"
        return full, self.header.metadata.get(full)

    def text(self, key: str) -> str | None:
        """A general string."""
        value = self.header.metadata.get(key)
        if value is not None and not isinstance(value, str | Skipped):
            raise self.fault(key, f"expected text, found {met(value)}")
        return value if isinstance(value, str) else None

    def number(self, key: str, default: int | None = None) -> int:
        """A count; without a default it must be there."""
        full, value = self.raw(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.fault(full, "missing; the header says too little to tell the model")
        return self._count(full, value)

    def by_layer(self, key: str, layer: int, layers: int, default: int) -> int:
        """A count that may differ by layer; the layers of a multi-token-prediction module may be left out of a list."""
        full, value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, tuple):
            return self._count(full, value)
        if len(value) < layers:
            raise self.fault(full, f"{len(value):,} values for {layers:,} layers")
        return self._count(full, value[min(layer, len(value) - 1)])

    def _count(self, key: str, value: Value) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.fault(key, f"expected a whole number, found {met(value)}")
        return value


@dataclass
class Layer:
    """The tensors of one layer by class, and what the keys say of it."""

    index: int
    keys: Keys
    rules: Architecture
    hidden: int
    layers: int
    tensors: dict[str, GgufTensor] = field(default_factory=dict)
    experts: dict[str, list[GgufTensor]] = field(default_factory=dict)
    moe_dense: bool = False

    def has(self, name: str) -> bool:
        return name in self.tensors

    def columns(self, name: str) -> int:
        return self.tensors[name].columns

    def rows(self, name: str) -> int:
        """Rows of one copy."""
        shape = self.tensors[name].shape
        return shape[1] if len(shape) > 1 else 1

    def key(self, name: str, default: int = 0) -> int:
        return self.keys.by_layer(name, self.index, self.layers, default)

    # --- what the layer is

    def names(self) -> set[str]:
        """The classes that are there; scales apart, which come with some encodings."""
        return {*(name for name in self.tensors if not name.endswith(_SCALES)), *self.experts}

    def kind(self, spec: Block) -> object:
        """What layers must share to have the same tensors."""
        attention = spec.mixer if isinstance(spec.mixer, Attention) else None
        indexed = isinstance(spec.mixer, LatentAttention) and spec.mixer.indexer
        cache = attention and (attention.window or attention.chunk, attention.kv, attention.value_is_key)
        return (*(mixer.kind for mixer in spec.mixers), spec.ffn.kind, cache, indexed)

    def block(self) -> Block:
        """The layer as a specification."""
        mixer, beside = self._mixers()
        norms, biases = self._norms()
        ffn = self._ffn()
        return Block(
            mixer=mixer,
            beside=beside,
            ffn=ffn,
            norms=len(norms),
            norm_bias=bool(norms) and len(biases) == len(norms),
            extra=tuple(self._extra(norms, biases)),
        )

    def _norms(self) -> tuple[list[str], list[str]]:
        names = [name for name in _NORMS if self.has(name)]
        return names, [name for name in names if self.has(f"{name}.bias")]

    def _extra(self, norms: Sequence[str], biases: Sequence[str]) -> Iterator[ExtraTensor]:
        for name, use in self.rules.extra.items():
            if self.has(name):
                yield extra_tensor(name, self.tensors[name], use)
        if len(biases) < len(norms):
            for name in biases:
                yield extra_tensor(f"{name}.bias", self.tensors[f"{name}.bias"], "vector")
        for name, tensor in self.tensors.items():
            if name.startswith("nextn."):
                yield extra_tensor(name, tensor, _use_of_mtp(name, tensor))
        if self.has("exp_probs_b.bias") and self.has("ffn_gate_inp.bias"):
            yield extra_tensor("exp_probs_b.bias", self.tensors["exp_probs_b.bias"], "vector")

    def _mixers(self) -> tuple[Mixer, Mixer | None]:
        found = list(self._mixers_found())
        if len(found) > 2:
            raise UnsupportedModel(
                f"layer {self.index} has {len(found)} token mixers", where=str(self.keys.header.path)
            )
        return (found or [NoMixer(kind="none")])[0], found[1] if len(found) > 1 else None

    def _mixers_found(self) -> Iterator[Mixer]:
        if self.has("attn_kv_a_mqa"):
            yield self._latent()
        elif self.has("ssm_f_a"):
            yield self._kimi_delta()
        elif self.has("ssm_conv1d") and (self.has("ssm_ba") or self.has("ssm_alpha")):
            yield self._delta()
        elif self.has("attn_q") or self.has("attn_qkv"):
            yield self._attention()
        if self.has("ssm_x"):
            yield self._mamba()
        elif self.has("ssm_in") and self.has("ssm_d"):
            yield self._mamba2()
        if self.has("shortconv.conv"):
            yield ShortConvolution(kind="short_conv", kernel=self.columns("shortconv.conv"))

    def _windowed(self) -> bool:
        windows = self.rules.windows
        if windows is None or self.index >= self.layers or windows.layer_count not in (None, self.layers):
            return False
        full, value = self.keys.raw("attention.sliding_window_pattern")
        if isinstance(value, tuple):
            if len(value) < self.layers:
                raise self.keys.fault(full, f"{len(value):,} values for {self.layers:,} layers")
            return bool(value[self.index])
        if windows.listed:
            raise self.keys.fault(full, "missing, or no list; it tells which layers have a window")
        period = self.keys.number("attention.sliding_window_pattern", windows.period)
        return period == 0 or self.index % period < period - 1

    def _window_size(self) -> int:
        windows = self.rules.windows
        assert windows is not None
        default = 0 if windows.optional else windows.size
        return self.keys.number("attention.sliding_window", default)

    def _attention(self) -> Attention:
        windows, windowed = self.rules.windows, self._windowed()
        size = self._window_size() if windowed else 0
        windowed = size > 0
        heads = self.key("attention.head_count")
        width = self.hidden // heads if heads else 0
        head_dim, value_dim = self.key("attention.key_length", width), self.key("attention.value_length", width)
        if windowed:
            head_dim = self.key("attention.key_length_swa", head_dim)
            value_dim = self.key("attention.value_length_swa", value_dim)
        shared = self._shares_cache()
        fused = self.has("attn_qkv")
        projects = fused or self.has("attn_k")
        norm = self.tensors.get("attn_q_norm")
        chunks = windows is not None and windows.chunks
        return Attention(
            kind="attention",
            heads=heads,
            kv_heads=self.key("attention.head_count_kv", heads),
            head_dim=head_dim,
            v_head_dim=value_dim if value_dim != head_dim else None,
            window=size if windowed and not chunks else None,
            chunk=(windows.size if windows is not None else None) if windowed and chunks else None,
            sinks=self.has("attn_sinks"),
            qkv_bias=self.has("attn_qkv.bias") or self.has("attn_q.bias"),
            out_bias=self.has("attn_output.bias"),
            qk_norm="none" if norm is None else "head" if norm.elements == head_dim else "full",
            fused_qkv=fused,
            output_gate=self.rules.output_gate,
            kv="shared" if shared else "own",
            kv_projections=projects,
            value_is_key=self.rules.keys_as_values and projects and not fused and not self.has("attn_v"),
        )

    def _shares_cache(self) -> bool:
        _, sharing = self.keys.raw("attention.shared_kv_layers")
        if sharing is None:
            return self.rules.shared_from is not None and self.index >= self.rules.shared_from
        return self.index >= self.layers - self.keys.number("attention.shared_kv_layers")

    def _latent(self) -> LatentAttention:
        rank = self.keys.number("attention.kv_lora_rank")
        rope = self.rows("attn_kv_a_mqa") - rank
        key = self.keys.number("attention.key_length_mla", 0) or self.keys.number("attention.key_length")
        value = self.keys.number("attention.value_length_mla", 0) or self.keys.number("attention.value_length")
        indexer = None
        if self.keys.raw("attention.indexer.top_k")[1] is not None:
            indexer = Indexer(
                heads=self.keys.number("attention.indexer.head_count"),
                head_dim=self.keys.number("attention.indexer.key_length"),
                top_k=self.keys.number("attention.indexer.top_k"),
                shared=not self.has("indexer.proj"),
            )
        return LatentAttention(
            kind="latent",
            heads=self.key("attention.head_count"),
            q_rank=self.rows("attn_q_a") if self.has("attn_q_a") else None,
            kv_rank=rank,
            nope_dim=key - rope,
            rope_dim=rope,
            v_head_dim=value,
            indexer=indexer,
        )

    def _delta(self) -> DeltaNet:
        heads, inner = self.keys.number("ssm.time_step_rank"), self.keys.number("ssm.inner_size")
        return DeltaNet(
            kind="delta",
            key_heads=self.keys.number("ssm.group_count"),
            value_heads=heads,
            key_dim=self.keys.number("ssm.state_size"),
            value_dim=inner // heads if heads else 0,
            conv_kernel=self.keys.number("ssm.conv_kernel"),
        )

    def _kimi_delta(self) -> KimiDelta:
        return KimiDelta(
            kind="kda",
            heads=self.key("attention.head_count"),
            head_dim=self.keys.number("kda.head_dim"),
            conv_kernel=self.keys.number("ssm.conv_kernel"),
        )

    def _mamba(self) -> Mamba:
        return Mamba(
            kind="mamba",
            inner=self.keys.number("ssm.inner_size"),
            state=self.keys.number("ssm.state_size"),
            dt_rank=self.keys.number("ssm.time_step_rank"),
            conv_kernel=self.keys.number("ssm.conv_kernel"),
            conv_bias=self.has("ssm_conv1d.bias"),
            inner_norms=self.has("ssm_dt_norm"),
        )

    def _mamba2(self) -> Mamba2:
        heads, inner = self.keys.number("ssm.time_step_rank"), self.keys.number("ssm.inner_size")
        return Mamba2(
            kind="mamba2",
            heads=heads,
            head_dim=inner // heads if heads else 0,
            state=self.keys.number("ssm.state_size"),
            groups=self.keys.number("ssm.group_count", 1),
            conv_kernel=self.keys.number("ssm.conv_kernel"),
            conv_bias=self.has("ssm_conv1d.bias"),
            projection_bias=self.has("ssm_in.bias"),
            gated_norm=self.has("ssm_norm"),
        )

    def _ffn(self) -> FFN:
        if self.has("ffn_gate_inp"):
            return self._experts()
        if not self.has("ffn_down") or not self.has("ffn_up"):
            return NoFFN(kind="none")
        width, bias = self.columns("ffn_down"), self.has("ffn_down.bias")
        if self.rules.ffn == "plain":
            return PlainFFN(kind="plain", intermediate=width, bias=bias)
        fused = self.rules.ffn == "fused" and not self.has("ffn_gate")
        return GatedFFN(kind="gated", intermediate=width, bias=bias, fused=fused)

    def _experts(self) -> MixtureOfExperts:
        separate = self.experts.get("ffn_down_exps")
        down = separate[0] if separate else self.tensors.get("ffn_down_exps")
        if down is None:
            raise UnsupportedModel(f"layer {self.index} has a router and no experts", where=str(self.keys.header.path))
        beside = self.rules.dense_beside_experts and self.has("ffn_down")
        shared = "ffn_down" if beside else "ffn_down_shexp"
        inner = down.shape[1] if len(down.shape) > 1 else 1
        up = self.tensors.get("ffn_up_exps")
        worked_on = self.hidden if up is None else up.columns
        self.moe_dense = beside
        return MixtureOfExperts(
            kind="moe",
            experts=self.keys.number("expert_count"),
            active=self.key("expert_used_count"),
            intermediate=down.columns,
            gated=self.rules.ffn != "plain",
            bias=self.has("ffn_down_exps.bias"),
            router_bias=self.has("ffn_gate_inp.bias") or self.has("exp_probs_b.bias"),
            shared_intermediate=self.columns(shared) if self.has(shared) else None,
            shared_gate=self.has("ffn_gate_inp_shexp"),
            expert_hidden=worked_on if worked_on == inner != self.hidden else None,
        )

    # --- which class each tensor belongs to

    def pieces(self, block: Block) -> Iterator[Piece]:
        """The tensors of the layer by the class that `operators.layers` derives for the block."""
        names = self._names(block)
        extra = {tensor.name for tensor in block.extra}
        for name, tensors in self.experts.items():
            for tensor in tensors:
                yield whole(name, tensor)
        for name, tensor in self.tensors.items():
            parent = parent_of(name)
            if name in extra or parent not in self.tensors:
                yield from self._shares(names.get(name, name), tensor, block)
            else:
                for piece in self._shares(names.get(parent, parent), tensor, block):
                    yield piece._replace(elements=0, columns=None)

    def _shares(self, name: str, tensor: GgufTensor, block: Block) -> Iterator[Piece]:
        """A tensor whole, or cut where it holds the rows of two classes."""
        piece = whole(name, tensor)
        if name in ("ffn_gate_up_exps", "ffn_gate_up_exps.bias"):
            gate, up = (name.replace("gate_up", part) for part in ("gate", "up"))
            yield from cut(piece, (gate, 1), (up, 1), same_rows=True)
        elif name == "attn_kv_b" and isinstance(block.mixer, LatentAttention):
            parts = ("attn_k_b", block.mixer.nope_dim), ("attn_v_b", block.mixer.v_head_dim)
            yield from cut(piece, *parts, same_rows=False)
        else:
            yield piece

    def _names(self, block: Block) -> dict[str, str]:
        """The file's classes that are called otherwise where classes are derived."""
        names = {}
        norms, _ = self._norms()
        for number, name in enumerate(norms):
            names[name] = _NORMS[number] if number < 4 else f"norm_{number}"
            if block.norm_bias:
                names[f"{name}.bias"] = f"{names[name]}.bias"
        kinds = {mixer.kind for mixer in block.mixers}
        if "delta" in kinds:
            names |= {"attn_qkv": "ssm_in", "attn_gate": "ssm_in", "ssm_beta": "ssm_ba", "ssm_alpha": "ssm_ba"}
        if kinds & {"delta", "kda", "mamba2"}:
            names["ssm_dt.bias"] = "ssm_dt"
        if not self.has("ffn_gate_inp.bias"):
            names["exp_probs_b.bias"] = "ffn_gate_inp.bias"
        if self.moe_dense:
            names |= {f"ffn_{part}": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
        return names


def whole(name: str, tensor: GgufTensor) -> Piece:
    """A tensor as a piece of one class."""
    return Piece(name, tensor.name, tensor.encoding, tensor.bytes, tensor.elements, tensor.columns)


def parent_of(name: str) -> str | None:
    """The class whose scale a tensor is; None for all others."""
    return next((name.removesuffix(suffix) for suffix in _SCALES if name.endswith(suffix)), None)


def extra_tensor(name: str, tensor: GgufTensor, use: Use) -> ExtraTensor:
    """A tensor that no layer kind describes."""
    columns = tensor.elements if use == "vector" else tensor.columns
    return ExtraTensor(name=name, rows=tensor.elements // columns, columns=columns, use=use)


def _use_of_mtp(name: str, tensor: GgufTensor) -> Use:
    if len(tensor.shape) < 2:
        return "vector"
    return "lookup" if name == "nextn.embed_tokens" else "matrix"
