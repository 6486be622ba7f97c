"""Bad scenario files: syntax, keys, values, and what vLLM refuses at start."""

from __future__ import annotations

from tests.cli.bad_cases import Bad, engine, scenario, settings

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
NGRAM = "speculative_method: ngram, num_speculative_tokens: 2"
EAGLE = "speculative_method: eagle3, num_speculative_tokens: 2, acceptance_rate: 0.7"
SYNTAX = (
    Bad("no such file", ("absent.yaml", "No such file"), ("run", "absent.yaml")),
    Bad("a folder", (".yaml: is a folder",), ("run", "dir.yaml"), {"dir.yaml/x": ""}),
    Bad("an empty file", ("case.yaml: is empty",), files={"case.yaml": ""}),
    Bad("only a comment", ("case.yaml: is empty",), files={"case.yaml": "# nothing\n"}),
    Bad("a list", ("case.yaml: holds [1, 2]", "mapping"), files={"case.yaml": "- 1\n- 2\n"}),
    Bad("a binary file", ("case.yaml:1", "UTF-8"), files={"case.yaml": b"\x89PNG\r\n\x1a\n\x00\xff"}),
    Bad("a control character", ("case.yaml:2", "control character"), files={"case.yaml": "name: x\nmodel: \x07\n"}),
    Bad("a huge file", ("larger than",), files={"case.yaml": "# " + "x" * (1 << 20)}),
    Bad("an alias bomb", ("case.yaml:", "expands to more than"), files={"case.yaml": ALIASES}),
    Bad("an alias in itself", ("case.yaml:1", "alias inside itself"), files={"case.yaml": "a: &a [*a]\n"}),
    Bad("deep nesting", ("nested too deeply",), files={"case.yaml": "a: " + "[" * 5000}),
    Bad("two documents", ("case.yaml:2", "second YAML document"), files={"case.yaml": "name: a\n---\nname: b\n"}),
    Bad("a Python tag", ("case.yaml:1", "tag"), files={"case.yaml": "name: !!python/name:os.system x\n"}),
    scenario("a duplicate key", "  max_num_seqs: 8", "  max_num_seqs: 8\n  max_num_seqs: 9", "case.yaml:12", "twice"),
    scenario("unclosed braces", "seconds: 0.01}", "seconds: 0.01", "case.yaml:17", "not valid YAML"),
    scenario("a tab", "  num_kv_heads: 1", "\tnum_kv_heads: 1", "case.yaml:7", "not valid YAML"),
    scenario("an undefined alias", "max_num_seqs: 8", "max_num_seqs: *eight", "case.yaml:11", "alias"),
)
KEYS = (
    scenario("unknown top key", "memory:", "memroy:", "case.yaml:12: memroy: unknown key; nearest is 'memory'"),
    scenario("unknown engine key", "max_num_seqs", "max_num_seq", "case.yaml:11: engine.max_num_seq", "'max_num_seqs'"),
    settings(
        "a reset at no time", "reset_prefix_cache=[{reset_running_requests: true}]", "--set reset_prefix", "is missing"
    ),
    settings("a reset that is none", "reset_prefix_cache=[5]", "reset_prefix_cache", "mapping"),
    settings("a reset before the start", "reset_prefix_cache=[{at_s: -1}]", "-1"),
    scenario("dashes", "max_num_seqs", "max-num-seqs", "with underscores"),
    scenario("unmodelled flag", "max_num_seqs: 8", "quantization: fp8", "not modelled", "case.yaml:11"),
    scenario("HiSparse", "max_num_seqs: 8", "hisparse_config: {}", "case.yaml:11", "HiSparse", "host memory"),
    scenario("images", "max_num_seqs: 8", "mm_encoder_only: true", "multimodal encoder budgets"),
    scenario("a connector", "max_num_seqs: 8", "kv_transfer_config: {}", "KV connectors and offload tiers", "loaded"),
    settings("offloading", "engine.kv_offloading_size=8", "--set engine.kv_offloading_size", "offload tiers"),
    settings("LoRA", "engine.enable_lora=true", "--set engine.enable_lora", "not modelled", "max_loras"),
    settings("streaming input", "engine.resumable=true", "streaming sessions"),
    settings("grammars", "engine.structured_outputs_config={}", "structured output", "grammar"),
    settings("pooling", "engine.pooler_config={}", "pooling and diffusion models"),
    settings("diffusion", "engine.diffusion_config={}", "pooling and diffusion models"),
    settings("data parallelism", "engine.dp_sync_interval=2", "DP prefill throttling", "share nothing"),
    settings("no replica", "engine.data_parallel_size=0", "--set engine.data_parallel_size", "0"),
    settings("prefill contexts", "engine.prefill_context_parallel_size=2", "prefill context parallelism"),
    settings("dynamic drafts", "engine.num_speculative_tokens_per_batch_size=[]", "dynamic draft lengths"),
    settings("unmodelled, with dashes", "engine.enable-lora=true", "LoRA limits"),
    scenario("unknown model key", "head_size", "head_sise", "case.yaml:8: model: unknown key 'head_sise'", "head_size"),
    scenario("unknown layer key", "window: 32", "widnow: 32", "case.yaml:6", "model.layers[1]", "'window'"),
    scenario("unknown memory key", "num_gpu_blocks_override", "num_gpu_blocks", "num_gpu_blocks_override"),
    scenario("unknown workload key", "trace: trace.jsonl", "trace: t\n  lmit: 3", "workload.lmit", "'limit'"),
    scenario("unknown step_time key", "seconds", "second", "case.yaml:16: step_time.second", "'seconds'"),
    scenario("unknown variant key", "name: case", "name: case\nvariants: {x: {engin.y: 1}}", "variants.x.engin.y"),
    scenario("model missing", "model:", "modle:", "'model'"),
    settings("unknown --set key", "engine.max_num_seq=3", "--set engine.max_num_seq: unknown key", "'max_num_seqs'"),
    settings("--set without a value", "engine.max_num_seqs", "--set", "dotted.key=value"),
    settings("--set below a value", "name.x=1", "--set name.x", "single value"),
    settings("--set outside a list", "model.layers.9.count=1", "--set model.layers.9.count", "0 to 1"),
    settings("--set of bad YAML", "engine.max_num_seqs=[1", "--set engine.max_num_seqs", "not valid YAML"),
)
VALUES = (
    scenario("text for a number", "max_num_seqs: 8", "max_num_seqs: many", "case.yaml:11", "whole number", "'many'"),
    scenario("a fraction", "max_num_seqs: 8", "max_num_seqs: 8.5", "case.yaml:11", "whole number"),
    scenario("a boolean", "max_num_seqs: 8", "max_num_seqs: true", "case.yaml:11", "whole number", "true"),
    scenario("zero", "max_num_seqs: 8", "max_num_seqs: 0", "case.yaml:11", "greater than or equal to 1"),
    settings("negative", "engine.block_size=-16", "--set engine.block_size", "greater than or equal to 1"),
    settings("a huge number", "engine.max_model_len=99999999999999", "engine.max_model_len", "less than"),
    settings("5,000 digits", "seed=" + "9" * 5000, "--set seed"),
    settings("not a number", "engine.watermark=.nan", "--set engine.watermark", "finite"),
    settings("a share above 1", "engine.watermark=1.5", "--set engine.watermark", "less than 1"),
    settings("a wrong suffix", "engine.max_model_len=32x", "32k"),
    settings("unknown choice", "engine.scheduling_policy=fifo", "'fcfs' or 'priority'"),
    settings("unknown dtype", "engine.kv_cache_dtype=fp9", "--set engine.kv_cache_dtype", "fp8"),
    settings("unknown model", "model=gema-3-27b", "--set model", "nearest: 'gemma-3-27b'"),
    settings("model as a number", "model=3", "--set model", "catalogue"),
    settings("unknown GPU", "hardware.gpu=H100-80", "--set hardware.gpu", "H100-80GB"),
    settings("unknown usage", "hardware.usage=servr", "--set hardware.usage", "nearest is 'server'"),
    settings("unknown kind of step time", "step_time.kind=constnt", "--set step_time.kind", "nearest is 'constant'"),
    scenario("no step-time file", "{kind: constant, seconds: 0.01}", "{file: no.yaml}", "step_time.file", "no.yaml"),
    scenario("a step-time file and more", "{kind: constant, s", "{file: x, s", "case.yaml:16", "step_time.seconds"),
    settings("a step of a year", "step_time.seconds=3.2e7", "--set step_time.seconds", "less than or equal to 3600"),
    settings("an endless coefficient", "step_time={a: 1e300}", "--set step_time: step_time.a: got 1e+300", "1000000"),
    scenario("a kind of layer as a list", "kind: full", "kind: [full]", "case.yaml:5", "must be one of full"),
    settings("step time of zero", "step_time.seconds=0", "--set step_time.seconds", "greater than 0"),
    settings("a name that is a path", "name=../up", "--set name", "letters"),
    settings("negative seed", "seed=-1", "--set seed"),
    settings("limit of zero", "workload.limit=0", "workload.limit"),
    settings("unknown trace format", "workload.format=mooncak", "workload", "mooncake"),
    settings("no such sample", "workload.trace=sample:mooncake", "mooncake-conversation"),
    settings("unknown synthetic key", "workload.synthetic={request: 3}", "workload.synthetic", "requests"),
    scenario("a window for full", "count: 2}", "count: 2, window: 3}", "case.yaml:5", "model.layers[0].window"),
    scenario("no layers", "count: 2}", "count: 0}", "case.yaml:5", "model.layers[0].count"),
    scenario("two memories", "_override: 400", "_override: 400\n  kv_cache_memory_bytes: 1G", "exactly one of"),
    scenario("no memory", "  num_gpu_blocks_override: 400\n", "", "case.yaml:12: memory", "exactly one of"),
    scenario("no workload", "workload:\n  trace: trace.jsonl\n", "", "workload", "missing"),
    scenario("additive without a GPU", "{kind: constant, seconds: 0.01}", "{}\nhardware: {gpu: null}", "hardware.gpu"),
)
REFUSED = (
    settings("pool too small", "memory.num_gpu_blocks_override=60", "GiB", "longest that fits", "max_model_len"),
    settings("a single block", "memory.num_gpu_blocks_override=1", "null block"),
    settings("budget below max_num_seqs", "engine.max_num_batched_tokens=4", "max_num_seqs", "refuses"),
    settings("no chunked prefill", "engine={enable_chunked_prefill: false, max_num_batched_tokens: 512}", "refuses"),
    settings("longer than the model", "engine.max_model_len=2k", "max_model_len", "1024", "refuses"),
    settings("retention no multiple", "engine.prefix_cache_retention_interval=100", "multiple", "refuses"),
    settings("threshold above the length", "engine.long_prefill_token_threshold=2000", "max_model_len", "refuses"),
    settings("more stages than layers", "engine.pipeline_parallel_size=9", "pipeline_parallel_size"),
)
DRAFTS = (
    engine("a rate above 1", "acceptance_rate: 1.2", "case.yaml:10: engine.acceptance_rate", "less than or equal to 1"),
    engine("a negative rate", f"{RATES}: [-0.1]", f"engine.{RATES}.0: got -0.1", "greater than or equal to 0"),
    engine("rates as a number", f"{RATES}: 0.5", f"engine.{RATES}: expected a list, got 0.5"),
    engine("acceptance without drafts", "acceptance_rate: 0.5", "engine.acceptance_rate", "no drafts"),
    engine("no acceptance", NGRAM, "engine.num_speculative_tokens", "has to be given", "acceptance_rate"),
    engine("two acceptances", f"{NGRAM}, acceptance_rate: 1, {LENGTH}: 2", "only one of acceptance_rate and"),
    engine("more rates than drafts", f"{NGRAM}, {RATES}: [1, 1, 1]", "has 3 rates for 2 drafts"),
    engine("fewer rates than drafts", f"{NGRAM}, {RATES}: [1]", "has 1 rates for 2 drafts"),
    engine("rising rates", f"{NGRAM}, {RATES}: [0.5, 0.6]", f"engine.{RATES}[1]", "rises from 0.5 to 0.6"),
    engine("a length above all drafts", f"{NGRAM}, {LENGTH}: 3.5", f"engine.{LENGTH}", "from 1 to 3", "3.5"),
    engine(
        "drafts of any length",
        "num_speculative_tokens_per_batch_size: [[1, 4, 3]]",
        "not modelled, remove it: dynamic draft lengths",
    ),
    engine("a draft without layers", EAGLE, "engine.speculative_method", "draft_layers"),
)
CASES = (*SYNTAX, *KEYS, *VALUES, *REFUSED, *DRAFTS)
