"""A layer's block parts: what a kernel, a mixer and a feed-forward consist of."""

from __future__ import annotations

from dataclasses import dataclass

from census.dataflow import Projection
from census.events import ATTENTION, RECURRENCE, Event


@dataclass(frozen=True, slots=True)
class Kernel:
    """A score kernel or a recurrence, with the projections that made its queries, keys and values.

    For queries, keys and values in turn, what it takes of each; None and nothing for one it does not take.

    Attributes:
        event: the kernel.
        taken: the value.
        heads: its heads and the width of one: of a score kernel's keys and values before any repeating.
        roles: the projections nearest before the kernel; none where they come from another layer.
    """

    event: Event
    taken: tuple[int | None, int | None, int | None]
    heads: tuple[tuple[int, int] | None, tuple[int, int] | None, tuple[int, int] | None]
    roles: tuple[tuple[Projection, ...], tuple[Projection, ...], tuple[Projection, ...]]

    @property
    def scores(self) -> bool:
        """Whether it scores tokens against each other, as opposed to updating a state."""
        return self.event.op == ATTENTION

    @property
    def name(self) -> str:
        """What it computes: `attention`, or a recurrence's name."""
        return self.event.op.removeprefix(RECURRENCE).removeprefix("census.")


@dataclass(frozen=True, slots=True)
class Mixer:
    """One token mixer: its kernels, what projects their output, and what gates it.

    A short convolution that stands alone is a mixer without a kernel.

    Attributes:
        kernels: in the order they ran.
        outputs: the projections applied to the kernels' output.
        latents: the projections before the roles' own: the down-projections of a factored one.
        gates: the projections that multiply the kernels' output.
        controls: the projections that make what a kernel takes beside its roles: decays, step sizes, a score's bias.
        convolutions: short convolutions before the kernels.
        starts: the values that are projected straight off the residual stream.
    """

    kernels: tuple[Kernel, ...]
    outputs: tuple[Projection, ...]
    latents: tuple[Projection, ...]
    gates: tuple[Projection, ...]
    controls: tuple[Projection, ...]
    convolutions: tuple[Event, ...]
    starts: frozenset[int]

    @property
    def events(self) -> tuple[Event, ...]:
        """Its kernels, as they were heard."""
        return tuple(kernel.event for kernel in self.kernels)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every projection that has a place in it."""
        roles = (p for kernel in self.kernels for role in kernel.roles for p in role)
        return (*roles, *self.outputs, *self.latents, *self.gates, *self.controls)


@dataclass(frozen=True, slots=True)
class Mlp:
    """The projections of one feed-forward, of one expert where routed, and the activations between them.

    Attributes:
        projections: in the order they ran, the last one down to the residual stream's width.
        activations: a name for each call of an activation.
        width: the width of its inner values.
    """

    projections: tuple[Projection, ...]
    activations: tuple[str, ...]
    width: int


@dataclass(frozen=True, slots=True)
class FeedForward:
    """What one residual branch feeds forward.

    Attributes:
        dense: the feed-forward every token runs, where nothing is routed beside it.
        routed: one expert of the routed one.
        router: the projections the choice of experts is made of.
        choice: the operator that chooses the experts last, a top-k in all but a few models.
        shared: the feed-forward that runs beside the routed one.
        shared_gate: the projection to one number that scales it.
        latents: the projections between the stream and a narrower width that the experts work in.
    """

    dense: Mlp | None
    routed: Mlp | None
    router: tuple[Projection, ...]
    choice: Event | None
    shared: Mlp | None
    shared_gate: Projection | None
    latents: tuple[Projection, ...] = ()

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every projection that has a place in it."""
        mlps = (p for mlp in (self.dense, self.routed, self.shared) if mlp is not None for p in mlp.projections)
        gate = () if self.shared_gate is None else (self.shared_gate,)
        return (*mlps, *self.router, *gate, *self.latents)
