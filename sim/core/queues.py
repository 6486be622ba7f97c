"""The waiting queue: a heap ordered by three integers, so that FCFS and priority are one piece of code.

FCFS: the key is a position; a new request goes to the back (next higher position), a preempted one to the front (next
lower). Priority: the key is (priority, arrival, rank of the id as a string), whoever pushes it back.
vllm 0.33.0 v1/core/sched/request_queue.py, v1/request.py:357.
"""

from __future__ import annotations

from sim.core._jit import i64, inlined
from sim.core.state import (
    ARRIVAL,
    BACK_POSITION,
    FRONT_POSITION,
    KEY_1,
    KEY_2,
    KEY_3,
    NUM_WAITING,
    PRIORITY,
    TIE,
    WAITING_HEAP,
    Int32s,
    Int64s,
    Queues,
)


@inlined
def _before(requests: Int64s, a: int, b: int) -> bool:
    if requests[a, KEY_1] != requests[b, KEY_1]:
        return bool(requests[a, KEY_1] < requests[b, KEY_1])
    if requests[a, KEY_2] != requests[b, KEY_2]:
        return bool(requests[a, KEY_2] < requests[b, KEY_2])
    return bool(requests[a, KEY_3] < requests[b, KEY_3])


@inlined
def _sift_up(requests: Int64s, heap: Int32s, place: int) -> None:
    while place > 0:
        parent = (place - 1) // 2
        if not _before(requests, heap[place], heap[parent]):
            return
        heap[place], heap[parent] = heap[parent], heap[place]
        place = parent


@inlined
def _sift_down(requests: Int64s, heap: Int32s, count: int, place: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= count:
            return
        if child + 1 < count and _before(requests, heap[child + 1], heap[child]):
            child += 1
        if not _before(requests, heap[child], heap[place]):
            return
        heap[place], heap[child] = heap[child], heap[place]
        place = child


@inlined
def push(requests: Int64s, queues: Queues, slot: int) -> None:
    """Put a request (back) into the waiting queue under the key it has."""
    count = queues.counters[NUM_WAITING]
    queues.lists[WAITING_HEAP, count] = slot
    queues.counters[NUM_WAITING] = count + 1
    _sift_up(requests, queues.lists[WAITING_HEAP], count)


@inlined
def push_new(requests: Int64s, queues: Queues, slot: int, priority_policy: bool) -> None:
    """Queue an arriving request."""
    if priority_policy:
        requests[slot, KEY_1] = requests[slot, PRIORITY]
        requests[slot, KEY_2] = requests[slot, ARRIVAL]
        requests[slot, KEY_3] = requests[slot, TIE]
    else:
        queues.counters[BACK_POSITION] += 1
        requests[slot, KEY_1] = queues.counters[BACK_POSITION]
    push(requests, queues, slot)


@inlined
def push_preempted(requests: Int64s, queues: Queues, slot: int, priority_policy: bool) -> None:
    """Queue a preempted request: at the front under FCFS, where its priority puts it otherwise."""
    if not priority_policy:
        queues.counters[FRONT_POSITION] -= 1
        requests[slot, KEY_1] = queues.counters[FRONT_POSITION]
    push(requests, queues, slot)


@inlined
def pop(requests: Int64s, queues: Queues) -> int:
    """Take the first request out of the waiting queue, which must not be empty."""
    heap = queues.lists[WAITING_HEAP]
    first = heap[0]
    count = queues.counters[NUM_WAITING] - 1
    queues.counters[NUM_WAITING] = count
    heap[0] = heap[count]
    _sift_down(requests, heap, count, 0)
    return i64(first)


@inlined
def discard(requests: Int64s, queues: Queues, slot: int) -> None:
    """Take one request out of the waiting queue, wherever it stands."""
    heap = queues.lists[WAITING_HEAP]
    count = queues.counters[NUM_WAITING]
    for place in range(count):
        if heap[place] == slot:
            count -= 1
            queues.counters[NUM_WAITING] = count
            heap[place] = heap[count]
            if place < count:
                _sift_down(requests, heap, count, place)
                _sift_up(requests, heap, place)
            return
