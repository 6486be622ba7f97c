"""A request on its way through the twin."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.twin.settings import Ask, Token

END_OF_SEQUENCE = (-1, 0)
WAITING, RUNNING, PREEMPTED, FINISHED = "waiting", "running", "preempted", "finished"


@dataclass(slots=True, eq=False)
class Request:
    """What the scheduler knows of a request, by the names of vllm 0.33.0 v1/request.py where it has one."""

    ask: Ask
    known: int = 0  # num_tokens: the prompt and the outputs that came back
    computed: int = 0  # num_computed_tokens: scheduled, whether or not they came back
    in_flight: int = 0  # num_in_flight_tokens
    stale: int = 0  # num_stale_output_tokens: in flight since before the last preemption
    drops_stale: bool = False  # drop_stale_output: and their outputs are thrown away
    placeholders: int = 0  # num_output_placeholders
    drafts: int = 0  # spec_token_ids: to be scheduled with the next token
    ordinal: int = 0  # in order of submission
    eligible_call: int = 0  # next_decode_eligible_step
    junction: int = 0  # shared_prefix_boundary
    preemptions: int = 0
    prefilling: bool = False  # is_prefill_chunk: more of what is known is left than was scheduled last
    status: str = WAITING
    first_scheduled: int | None = None
    first_token: int | None = None
    cached: int = 0
    tokens: tuple[Token, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.known = self.ask.prompt_tokens
        self.tokens = self.ask.tokens

    @property
    def name(self) -> str:
        """Its id."""
        return self.ask.name

    @property
    def urgency(self) -> tuple[int, int, str]:
        """Its place among waiting requests under the priority policy."""
        return (self.ask.priority, self.ask.arrival_ns, self.ask.name)

    @property
    def known_tokens(self) -> tuple[Token, ...]:
        """Its text so far; a token that ended the sequence is not the text's own, and the same for everybody."""
        known = self.tokens[: self.known]
        return (*known[:-1], END_OF_SEQUENCE) if self.said_end else known

    @property
    def said_end(self) -> bool:
        """Whether its last token ended the sequence."""
        return self.known - self.ask.prompt_tokens == self.ask.output_tokens < self.ask.max_tokens

    def stop_reason(self, max_model_len: int) -> str | None:
        """Why it ends with the output that has just come back (vllm 0.33.0 v1/core/sched/utils.py:94)."""
        outputs = self.known - self.ask.prompt_tokens
        if self.said_end:
            return "stop"
        if outputs >= self.ask.max_tokens:
            return "length"
        return "truncated" if self.known >= max_model_len else None
