"""Attention that a layer computes by itself, recognised by its operators.

Score attention is a softmax between two matmuls of which no operand is a weight: the first makes the scores of
queries and keys, the second weighs the values. A router's softmax has no such matmul before it. Lightning
attention has a fixed decay in the softmax's place, and goes block by block: it is a recurrence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from census.dataflow import MOVES, DataFlow, Source
from census.events import ATTENTION, DROPOUT, RECURRENCE, Event

_SOFTMAXES = frozenset({"aten._softmax", "aten.softmax", "aten._safe_softmax"})


@dataclass(frozen=True)
class EagerAttention:
    """One score kernel found by its operators.

    Attributes:
        event: the kernel, as an event of its own: queries, keys and values in, their weighted sum out.
        dropouts: the dropouts on its probabilities.
        masked: whether anything but numbers acts on its scores or its probabilities: a mask, a bias.
    """

    event: Event
    dropouts: tuple[Event, ...]
    masked: bool


def eager_attentions(flow: DataFlow) -> tuple[EagerAttention, ...]:
    """Return the score kernels a layer computes by its own matmuls and softmax, in the order they ran."""
    softmaxes = (event for event in flow.run.events if event.op in _SOFTMAXES)
    found = (_attention(flow, softmax) for softmax in softmaxes)
    return tuple(attention for attention in found if attention is not None)


def _attention(flow: DataFlow, softmax: Event) -> EagerAttention | None:
    def stop(value: int) -> bool:
        return value in flow.mixing_matmuls or value in flow.projections

    back = list(flow.walk_back(softmax.inputs[:1], stop, flow.content))
    before = [v for v in back if v in flow.mixing_matmuls]
    on = list(flow.walk_on(softmax.outputs, stop))
    weighed = [value for value in on if value in flow.mixing_matmuls]
    if not before or not weighed:
        return None
    query, key = flow.mixing_matmuls[before[0]]
    value = next(operand for operand in flow.mixing_matmuls[weighed[0]] if operand not in on)
    heads = _all_heads(flow, (query, key, value), weighed[0])
    window = _band(flow, softmax, before[0], weighed[0])
    event = Event(
        ATTENTION,
        softmax.module,
        (query, key, value),
        (weighed[0],),
        attributes={"flavour": "full" if window is None else "sliding", "window": window, "heads": heads},
    )
    dropouts = (e for e in flow.run.events if e.op == DROPOUT and set(e.inputs) & set(on))
    between = {flow.producer[v] for v in (*back, *on) if v in flow.producer and not stop(v)}
    masked = any(sum(flow.shape(value) != () for value in event.inputs) > 1 for event in between)
    return EagerAttention(event, tuple(dropouts), masked)


def _band(flow: DataFlow, softmax: Event, scores: int, weighed: int) -> int | None:
    """Return the reach of scores that were made in blocks, None for those of every query with every key.

    Blocks of queries are scored with their own block of keys and both of its neighbours; or the scores of
    overlapping blocks are cut to a band, and then the keys are not as many as the values that are weighed.
    """
    *_, queries, keys = flow.shape(scores)
    tokens = math.prod(flow.shape(flow.run.input)[:-1]) // flow.batch
    if keys != flow.shape(flow.mixing_matmuls[weighed][0])[-1]:
        return flow.shape(softmax.inputs[0])[-1] // 2
    return queries if queries < tokens and keys == 3 * queries else None


def lightning_attentions(flow: DataFlow) -> tuple[Event, ...]:
    """Return the recurrences in which scores of queries and keys, decayed, weigh values block by block.

    The blocks of one module are one recurrence, an event of its own.
    """
    blocks: dict[str, list[tuple[int, int, int, int]]] = {}
    for scores, (query, key) in flow.mixing_matmuls.items():
        for weighed in _weighed_by(flow, scores):
            module = flow.producer[scores].module
            blocks.setdefault(module, []).append((query, key, flow.mixing_matmuls[weighed][1], weighed))
    return tuple(_lightning_attention(flow, module, found) for module, found in blocks.items())


def _lightning_attention(flow: DataFlow, module: str, blocks: list[tuple[int, int, int, int]]) -> Event:
    query, key, value, weighed = blocks[0]
    heads = _all_heads(flow, (query, key, value), weighed)
    (_, key_width), (number, value_width) = heads[1:]
    return Event(
        RECURRENCE + "lightning_attention",
        module,
        (query, key, value),
        tuple(weighed for *_, weighed in blocks),
        attributes={
            "heads": heads,
            "state": number * key_width * value_width,
            # Adding an outer product to the state and reading it, as a recurrence: a block at a time costs more.
            "flops": 4 * number * key_width * value_width,
        },
    )


def _weighed_by(flow: DataFlow, scores: int) -> list[int]:
    """Return the mixing matmuls that take scores which a fixed decay alone was multiplied into."""
    decayed: set[int] = set()
    reached = {scores}
    for event in flow.run.events:
        taken = reached.intersection(event.inputs)
        by_weight = event.op == "aten.mul" and Source.WEIGHT in map(flow.source, event.inputs)
        if taken and (event.op in MOVES or by_weight):
            reached.update(event.outputs)
            if by_weight or decayed.intersection(taken):
                decayed.update(event.outputs)
    return [value for value, operands in flow.mixing_matmuls.items() if decayed.intersection(operands[:1])]


def _all_heads(flow: DataFlow, roles: tuple[int, int, int], weighed: int) -> tuple[tuple[int, int], ...]:
    """Return heads and width of queries, keys and values.

    Where keys were repeated before they were rotated, the values alone still show how many heads there are.
    """
    width = flow.shape(roles[0])[-1]
    queries, keys, values = (_heads(flow, operand) for operand in roles)
    own = min(keys, values)
    return (queries, width), (own, width), (own, flow.shape(weighed)[-1])


def _heads(flow: DataFlow, operand: int) -> int:
    """Return how many heads an operand has, before keys and values are repeated for the queries' heads.

    An operand is (..., heads, sequence, width) or its transpose, heads and batch as one dimension or two; a
    repeat is an expansion of a value that is only moved from there on.
    """
    return math.prod(flow.shape(operand)[:-2]) // flow.batch // repeats(flow, operand)


def repeats(flow: DataFlow, value: int) -> int:
    """Return how many times a value, moved as it may be, holds what it was made of."""
    times = 1
    while (event := flow.producer.get(value)) is not None and event.op in MOVES:
        fluid = flow.fluid_content(event)
        if len(fluid) != 1:
            break
        if event.op in ("aten.expand", "aten.repeat"):
            times *= math.prod(flow.shape(value)) // math.prod(flow.shape(fluid[0]))
        [value] = fluid
    return times
