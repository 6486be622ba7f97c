"""A few rows of each published format, written for the tests, and the settings they need."""

from __future__ import annotations

import json
from typing import Any


def lines(*rows: dict[str, Any]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def end(name: str, session: str, received: int, took: int, hashes: list[int]) -> dict[str, Any]:
    """A finished request of a Dynamo request trace."""
    replay = {"trace_block_size": 4, "input_length": 4 * len(hashes) - 1, "input_sequence_hashes": hashes}
    request = {"request_id": name, "output_tokens": 2, "request_received_ms": received, "total_time_ms": took}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "agent_context": {"session_id": session},
        "request": request | {"replay": replay},
    }


def round_of(session: str, number: int, seconds: int, total: int, cached: int) -> dict[str, Any]:
    """A TraceLab round submitted at a second, answered two seconds later."""
    events = [("user_message", seconds), ("text", seconds + 2)]
    return {
        "provider": "p",
        "session_id": session,
        "round_index": number,
        "model": "m",
        "input_tokens_total": total,
        "prefix_tokens": cached,
        "output_tokens": 10,
        "timing_events": [
            {"event_type": kind, "timestamp": f"2026-06-01T05:40:{second:02d}.5Z"} for kind, second in events
        ],
    }


def span(start: str, end: str, **attributes: Any) -> dict[str, Any]:
    """A span of a session file."""
    return {"trace_id": "t", "span_id": start, "start_time": start, "end_time": end, "attributes": attributes}


def otlp(start: int, **attributes: Any) -> dict[str, Any]:
    """A line of an OTLP export with one span."""
    values = [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]
    one = {"traceId": "t", "spanId": str(start), "startTimeUnixNano": str(start), "attributes": values}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}


def weka(**more: Any) -> dict[str, Any]:
    """A kv-cache-tester session: two turns and a sub-agent."""
    inner = [{"t": 1.0, "type": "n", "in": 130, "out": 4, "hash_ids": [1, 9]}]
    calls = [
        {"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.5},
        {"t": 4.0, "type": "subagent", "agent_id": "a", "requests": inner},
        {"t": 9.0, "type": "s", "in": 200, "out": 6, "hash_ids": [1, 2, 3], "api_time": 1.0, "think_time": 3.5},
        {"t": 20.0, "type": "n", "in": 10, "out": 0, "hash_ids": []},
    ]
    return {"id": "one", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": calls} | more


USAGE = "gen_ai.usage."
ARRIVAL = {"arrival": {"kind": "constant", "rate_per_s": 0.5}}
MESSAGES = json.dumps([{"role": "user", "content": "What is the capital of France, and why is it? " * 4}])

# name: text, settings besides the trace
EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "mooncake-delta": (
        lines(
            {"session_id": "s", "timestamp": 7, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]},
            {"session_id": "s", "delay": 5, "input_length": 8, "output_length": 3, "hash_ids": [3]},
            {"session_id": "s", "delay": 0.5, "input_length": 8, "output_length": 3},
        ),
        {},
    ),
    "agentic-mooncake": (
        lines(
            {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local"},
            {"request_id": "r", "play_id": "p", "input_length": 8, "output_length": 2, "hash_ids": [1, 2]},
            {"request_id": "c", "play_id": "p", "input_length": 4, "output_length": 2, "hash_ids": [1]}
            | {"dependencies": [{"request_id": "r", "trigger": "completion", "delay_ms": 5}]},
            {"request_id": "d", "play_id": "p", "input_length": 5, "output_length": 2, "hash_ids": [1, 4]}
            | {"dependencies": [{"request_id": "r", "trigger": "completion", "delay_ms": 7}]},
        ),
        {},
    ),
    "dynamo": (
        lines(
            end("b", "s", 1020, 5, [7, 8]),
            end("a", "s", 1000, 10, [7]),
            {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"},
        ),
        {},
    ),
    "kv-cache-tester": (json.dumps(weka()), {}),
    "tracelab": (lines(round_of("x", 0, 1, 50, 20), round_of("x", 1, 9, 75, 60)), {}),
    "tracelab-csv": (
        (
            "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n"
            "0,117,0,0,2318,200,300\n0,117,1,2518,348,131,0\n"
        ),
        {},
    ),
    "llmservingsim": (
        lines(
            {"input_toks": 18, "output_toks": 3, "arrival_time_ns": 5, "input_tok_ids": [*range(18)]},
            {"session_id": "s", "arrival_time_ns": 9}
            | {"sub_requests": [{"input_toks": 4, "output_toks": 2, "tool_duration_ns": 30}] * 2},
        ),
        {},
    ),
    "aibrix": (
        lines(
            {"timestamp": 6011, "requests": [{"Prompt Length": 3, "Output Length": 8, "prompt": "Where is it"}]},
            {"timestamp": 7000, "requests": []},
            {"timestamp": 8011, "requests": [{"prompt_length": 3, "output_length": None, "prompt": "Where is it"}] * 2},
            {"timestamp": 8012, "requests": [{"prompt_length": 3, "output_length": 4, "prompt": "Where is it"}]},
        ),
        {},
    ),
    "applied-compute": (
        lines(
            {"num_turns": 1, "input_prompt_length": 16, "assistant_response_length": [4]}
            | {"tool_call_output_length": [8], "tool_call_latency": [0.01], "final_assistant_response_length": 5}
        ),
        ARRIVAL,
    ),
    "vllm-result": (
        json.dumps(
            {"input_lens": [5, 6, 7], "output_lens": [2, 0, 3], "start_times": [70.5, 70.25, 70.0]}
            | {"errors": ["", "boom", ""], "ttfts": [0.1, 0.0, 0.1]}
        ),
        {},
    ),
    "sharegpt": (
        json.dumps(
            [
                {"id": "c", "conversations": [{"from": "human", "value": "a" * 70}, {"from": "gpt", "value": "b" * 40}]}
                | {"more": 1},
                {"conversations": [{"from": "system", "value": "c" * 70}, {"from": "human", "value": "d" * 40}]},
            ]
        ),
        {"chars_per_token": 4, **ARRIVAL},
    ),
    "custom": (lines({"prompt": "x" * 64, "output_tokens": 12}), {"chars_per_token": 4, **ARRIVAL}),
    "lmcache": (
        lines({"timestamp": 1760428635884722, "input": "x" * 64, "output": "y" * 9, "session_id": "s"}),
        {"chars_per_token": 4},
    ),
    "otel": (
        json.dumps(
            {
                "spans": [
                    span(
                        "2026-02-25T12:00:00.5",
                        "2026-02-25T12:00:01",
                        **{"gen_ai.input.messages": MESSAGES, "gen_ai.output.text": "Paris."},
                    ),
                    span(
                        "2026-02-25T12:00:03+00:00",
                        "2026-02-25T12:00:04+00:00",
                        **{f"{USAGE}prompt_tokens": 50, f"{USAGE}completion_tokens": 20, "gen_ai.prompt": MESSAGES},
                    ),
                    span("2026-02-25T12:00:03", "2026-02-25T12:00:04", **{"http.route": "/"}),
                ]
            },
            indent=2,
        ),
        {"chars_per_token": 4},
    ),
    "otlp": (
        lines(
            otlp(1700000000000000002, **{f"{USAGE}prompt_tokens": 5, f"{USAGE}completion_tokens": 6}),
            otlp(1700000000000000001, **{f"{USAGE}input_tokens": 7, f"{USAGE}output_tokens": 8, "session.id": "u"}),
        ),
        {},
    ),
    "burstgpt": (
        (
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n19440111.5,,2,ChatGPT,36,0,36,API log\n"
            "19440112.0,,2,ChatGPT,36,7,36,API log\n"
        ),
        {},
    ),
    "vidur": ("num_prefill_tokens,num_decode_tokens,pd_ratio\n3742,284,0.07\n18,243,13.5\n", ARRIVAL),
    "splitwise-sim": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,1.5,1,9,4\n",
        {},
    ),
    "azure-multimodal": (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T12:00:00.269Z,0,770,491\n",
        {},
    ),
    "table": (
        "start_ms,isl,osl,user\n1500,10,2,u\n1750.5,12,3,\n",
        {"columns": {"arrival": "start_ms", "prompt_tokens": "isl", "output_tokens": "osl", "session": "user"}},
    ),
    "table of objects": (
        lines({"ts": 1700000000.25, "in": 4, "out": 5}, {"ts": 1700000001.5, "in": 4, "out": 5, "more": []}),
        {"columns": {"arrival": "ts", "prompt_tokens": "in", "output_tokens": "out"}},
    ),
}
