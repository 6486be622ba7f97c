"""Settings that vLLM starts with and fails on later, when a certain request comes: what a user is told then."""

from __future__ import annotations

from typing import Final

from sim.core.failures import KEYED_TWICE, LOOK_UP_WITHOUT_KEY, PADDING_CUT, STATE_WITHOUT_KEY
from sim.errors import FailureError

WHERE: Final = {
    PADDING_CUT: "engine.long_prefill_token_threshold",
    STATE_WITHOUT_KEY: "engine.num_speculative_tokens",
    LOOK_UP_WITHOUT_KEY: "engine.num_mtp_modules",
    KEYED_TWICE: "engine.async_scheduling",
}
WHAT: Final = {
    PADDING_CUT: """a request with one token left enters with places for its drafts, and the threshold cuts them: set it
        to 0 or above num_speculative_tokens""",
    STATE_WITHOUT_KEY: """a state is exported at a boundary among drafts, which have no key yet: make fewer drafts than
        the hash block size""",
    LOOK_UP_WITHOUT_KEY: """without full attention a look-up begins at a block whose key covers more tokens than there
        are: set num_mtp_modules to 1, or enable_prefix_caching to false""",
    KEYED_TWICE: """rejected drafts take processed tokens back to the prompt's tail, whose block is cached once more:
        set async_scheduling to true, or prefix_match_unit to the block size""",
}
"""The key at fault; what happens and what can be done, by the core's number."""


def vllm_failure(why: int, step: int) -> FailureError:
    """The error of a run that came to a step, ``step`` others before it, which vLLM does not survive."""
    return FailureError(
        f"vLLM's own scheduler fails with these settings, in step {step}: {WHAT[why]}", where=WHERE[why]
    )
