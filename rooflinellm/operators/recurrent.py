"""Recurrent mixers: a state of constant size for each sequence, read and written once a pass."""

from __future__ import annotations

from rooflinellm.specs.model import (
    DeltaNet,
    KimiDelta,
    LightningAttention,
    Mamba,
    Mamba2,
    Recurrent,
    ShortConvolution,
)


def state_elements(mixer: Recurrent, hidden: int) -> tuple[int, int]:
    """Elements of a sequence's state in one layer: recurrent, and waiting in the convolution.

    A delta net keeps a d_k x d_v matrix for each value head, a state space N numbers for each inner channel, lightning
    attention a square matrix for each head; a convolution of kernel k keeps k - 1 inputs of each channel.

    Parameters
    ----------
    mixer : Recurrent
        The layer's mixer.
    hidden : int
        Hidden size of the model. [-]

    Returns
    -------
    tuple of int
        Recurrent elements and convolution elements. [-]
    """
    match mixer:
        case DeltaNet():
            recurrent = mixer.value_heads * mixer.key_dim * mixer.value_dim
            return recurrent, (mixer.conv_kernel - 1) * mixer.conv_channels
        case KimiDelta():
            return mixer.heads * mixer.head_dim**2, (mixer.conv_kernel - 1) * mixer.conv_channels
        case Mamba() | Mamba2():
            return mixer.inner * mixer.state, (mixer.conv_kernel - 1) * mixer.conv_channels
        case ShortConvolution():
            return 0, (mixer.kernel - 1) * hidden
        case LightningAttention():
            return mixer.heads * mixer.head_dim**2, 0


def flops_per_token(mixer: Recurrent, hidden: int) -> int:
    """FLOPs of the recurrence and the convolution for one token; the projections are linear layers of their own.

    Per state element: 7 in a delta net (decay 1, prediction 2, update 2, readout 2), 5 in the second state space
    (decay 1, input 2, readout 2) and in lightning attention, about 9 in the first, whose exponential is counted as
    one. A convolution of kernel k takes 2 k for each channel; a gated short convolution 2 more.

    Parameters
    ----------
    mixer : Recurrent
        The layer's mixer.
    hidden : int
        Hidden size of the model. [-]

    Returns
    -------
    int
        [FLOP]

    References
    ----------
    Yang et al. (2024), arXiv:2412.06464; Dao and Gu (2024), arXiv:2405.21060; Gu and Dao (2023), arXiv:2312.00752.
    """
    recurrent, _ = state_elements(mixer, hidden)
    match mixer:
        case DeltaNet() | KimiDelta():
            return 7 * recurrent + 2 * mixer.conv_kernel * mixer.conv_channels
        case Mamba():
            return 9 * recurrent + 2 * mixer.conv_kernel * mixer.conv_channels
        case Mamba2():
            return 5 * recurrent + 2 * mixer.conv_kernel * mixer.conv_channels
        case ShortConvolution():
            return (2 * mixer.kernel + 2) * hidden
        case LightningAttention():
            return 5 * recurrent
