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
class Mlp:
    """The projections of one feed-forward, of one expert where routed, and the activations between them.

    Attributes:
        projections: in the order they ran, the last one down to the residual stream's width.
        activations: a name for each call of an activation.
        width: the width of its inner values, of all experts together where every token runs several.
        gates: the projections that scale what it takes (a gated norm) or what it returns.
        adapters: the low-rank pairs that run beside its projections, on the same input.
        links: the projections, at the stream's width, that its output goes through afterwards.
        sparse: whether it cuts activations to zero below a threshold of their own statistics.
    """

    projections: tuple[Projection, ...]
    activations: tuple[str, ...]
    width: int
    gates: tuple[Projection, ...] = ()
    adapters: tuple[Projection, ...] = ()
    links: tuple[Projection, ...] = ()
    sparse: bool = False

    @property
    def held(self) -> tuple[Projection, ...]:
        """Every projection that has a place in it."""
        return (*self.projections, *self.gates, *self.adapters, *self.links)


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
        chained: the feed-forward that takes the outputs' own, with no residual sum between.
    """

    kernels: tuple[Kernel, ...]
    outputs: tuple[Projection, ...]
    latents: tuple[Projection, ...]
    gates: tuple[Projection, ...]
    controls: tuple[Projection, ...]
    convolutions: tuple[Event, ...]
    starts: frozenset[int]
    chained: Mlp | None = None

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
class FeedForward:
    """What one residual branch feeds forward, or all branches of a layer.

    Attributes:
        dense: the feed-forward every token runs, where nothing is routed beside it.
        routed: one expert of the routed one.
        router: the projections the choice of experts is made of.
        choice: the operator that chooses the experts last: a top-k in all but a few models, or a look-up in a table.
        experts: how many experts there are to choose among.
        shared: the feed-forwards that every token runs beside the routed one.
        latents: the projections between the stream and a narrower width that the experts work in.
    """

    dense: Mlp | None
    routed: Mlp | None = None
    router: tuple[Projection, ...] = ()
    choice: Event | None = None
    experts: int = 0
    shared: tuple[Mlp, ...] = ()
    latents: tuple[Projection, ...] = ()

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every projection that has a place in it."""
        mlps = (p for mlp in (self.dense, self.routed, *self.shared) if mlp is not None for p in mlp.held)
        return (*mlps, *self.router, *self.latents)
