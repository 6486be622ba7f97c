"""Bad command lines and outputs that cannot be written."""

from __future__ import annotations

from tests.cli.bad_cases import Bad, command

GEMMA = "plan gemma-3-27b --available-kv-cache-memory-gib 20"

FLAGS = (
    command("unknown command", "rnu case.yaml", "'rnu'", "run"),
    command("unknown flag", "run case.yaml --jsn", "--jsn", "nearest is --json"),
    command("unknown plan flag", f"{GEMMA} --max-model-length 3", "--max-model-length", "--max-model-len"),
    command("unmodelled plan flag", f"{GEMMA} -pcp 2", "-pcp: not modelled", "prefill context parallelism"),
    command("no scenario", "run", "Missing argument"),
    command("no value", "run case.yaml --out", "--out"),
    command("too many", "curve case.yaml case.yaml", "case.yaml"),
    command("unknown scenario", "run toyy", "toyy", "nearest is 'toy'"),
    command("one step log for two", "run case.yaml toy --step-log log", "--step-log", "one scenario"),
    command("one file of events for two", "run case.yaml toy --kv-events log", "--kv-events", "one scenario"),
    command("one name twice", "run case.yaml case.yaml", "'case'"),
)
PLANS = (
    command("unknown model to plan", "plan gema-3-27b --num-gpu-blocks-override 9", "nearest is 'gemma-3-27b'"),
    command("misspelt own flag of plan", f"{GEMMA} --jsn", "--jsn", "nearest is --json"),
    command("own flag of plan behind the dashes", "plan -- vllm serve gemma-3-27b --gpu L4", "--gpu", "before the two"),
    command("plan without a model", "plan -- vllm serve --port 80", "no model in it"),
    command("plan of another program", "plan -- docker run nginx", "no vLLM image"),
    command("utilisation above 1", "plan gemma-3-27b --gpu-memory-utilization 1.5", "at most 1"),
    command("unknown quantization", "plan gemma-3-27b --quantization fp9", "nearest is 'fp8'"),
    command("no such vLLM file", "plan -- vllm serve gemma-3-27b --config no.yaml", "no.yaml", "cannot be read"),
    command("no log", "explain-log case.yaml", "case.yaml", "no line of a vLLM startup log"),
    command("plan on too small a GPU", "plan gemma-3-27b --gpu L4", "weights", "leave nothing", "L4-24GB"),
    command("two memory flags", f"{GEMMA} --num-gpu-blocks-override 3", "only one of the memory flags"),
    command("plan refused", "plan gemma-3-27b --available-kv-cache-memory-gib 5", "GiB", "longest that fits"),
    command("length as a word", f"{GEMMA} --max-model-len long", "--max-model-len", "'long'"),
    command("heads not divided", f"{GEMMA} --tensor-parallel-size 3", "--tensor-parallel-size", "32 attention heads"),
    command("no such GPU", f"{GEMMA} --gpu H100-80G", "--gpu", "H100-80GB"),
    command("request too long", f"{GEMMA} --request-tokens 200k", "--request-tokens", "131,072"),
    command("request of nothing", f"{GEMMA} --request-tokens 0", "--request-tokens"),
    command("curve beyond the model", "curve case.yaml --request-tokens 2048", "--request-tokens", "1,024"),
    command("compare, all refused", "compare case.yaml --set memory.num_gpu_blocks_override=60", "GiB", "refuses"),
    command("compare without a workload", "compare case.yaml --set workload={}", "workload", "missing"),
)
COUNTED = '{"completed": %s, "total_input_tokens": 8, "total_output_tokens": 4, "mean_tpot_ms": 5}'
POINTS = tuple(
    Bad(name, (file, *says), ("calibrate", file, "gpt-oss-20b"), {file: text})
    for name, file, text, *says in (
        ("a point with a comma too much", "p.csv", "concurrency,input_len\n1,2,3\n", "p.csv:2", "3 columns"),
        ("points with a column twice", "p.csv", "input_len,input_len\n1,2\n", "p.csv:1", "'input_len' is given twice"),
        ("a point too long for CSV", "p.csv", "input_len\n" + "1" * 200_000, "p.csv:2", "not a CSV row"),
        ("time between a single token", "r.json", COUNTED % 4, "one token"),
        ("endlessly many requests", "r.json", COUNTED % "Infinity", "infinity"),
        ("a result nested too deeply", "r.json", "[" * 5000, "no result"),
    )
)
SWEEP = "scenario: case.yaml\ngrid: {engine.max_num_seqs: [8, 4]}\n"
SWEEPS = (
    Bad("a plot of one column", ("sweep.yaml:3: plot", "at least 2"), ("sweep", "sweep.yaml"),
        {"sweep.yaml": SWEEP + "plot: [limit]\n"}),
    Bad("an endless value of a sweep", ("sweep.yaml:2: grid.engine.watermark", "finite"), ("sweep", "sweep.yaml"),
        {"sweep.yaml": "scenario: case.yaml\ngrid: {engine.watermark: [0.1, .inf]}\n"}),
    Bad("a foreign file where a sweep goes on", ("out/points.jsonl:1", "no finished point", "--out"),
        ("sweep", "sweep.yaml", "--out", "out"), {"sweep.yaml": SWEEP, "out/points.jsonl": "x,y\n1,2\n"}),
)  # fmt: skip
OUTPUTS = (
    Bad("output is a file", ("trace.jsonl", "no folder"), ("run", "case.yaml", "--out", "trace.jsonl")),
    Bad(
        "output below a file",
        ("trace.jsonl/out", "cannot be written"),
        ("run", "case.yaml", "--out", "trace.jsonl/out"),
    ),
    Bad("output in /proc", ("/proc/out", "cannot be written"), ("run", "case.yaml", "--out", "/proc/out")),
    Bad("curve in /proc", ("/proc/out", "cannot be written"), ("curve", "case.yaml", "--out", "/proc/out")),
    Bad("step log is a folder", ("sub", "regular file"), ("run", "case.yaml", "--step-log", "sub"), {"sub/x": ""}),
    Bad("step log in /proc", ("/proc/log", "cannot be written"), ("run", "case.yaml", "--step-log", "/proc/log")),
)
DRAFTS = tuple(
    Bad(name, ("--speculative-config", *named), ("run", "case.yaml", "--speculative-config", text))
    for name, text, *named in (
        ("drafts that are no JSON", "{method: ngram}", "no JSON", "quote it"),
        ("drafts as a list", "[3]", "expected a mapping in JSON"),
        ("drafts without a number", '{"method": "ngram"}', "num_speculative_tokens is missing"),
        ("drafts of nobody", '{"num_speculative_tokens": 3}', "neither a method nor a draft model"),
        ("drafts by a method nobody knows", '{"method": "ngrm", "num_speculative_tokens": 3}', "'ngram'"),
    )
)
CASES = (*POINTS, *SWEEPS, *FLAGS, *PLANS, *OUTPUTS, *DRAFTS)
