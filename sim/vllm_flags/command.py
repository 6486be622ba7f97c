"""A pasted command line: where vLLM's arguments begin in it, and the environment it sets.

Understood: ``vllm serve …``, ``python -m vllm.entrypoints.openai.api_server …``, ``docker run … IMAGE …`` (or podman,
nerdctl), each with variables in front, with line continuations, and with a shell prompt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.errors import InputError

_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.api_server",
    "vllm.entrypoints.launchers.api_server",
)
_CONTAINERS = ("docker", "podman", "nerdctl")
_NAMING = (
    "--name",
    "--entrypoint",
    "-v",
    "--volume",
    "--network",
    "--hostname",
    "-h",
    "-l",
    "--label",
    "-w",
    "--mount",
)
"""Docker flags whose value may well hold the word vllm."""

_IMAGE = re.compile(r"(?:^|/)[\w.-]*vllm[\w.-]*(?::[\w.-]+)?(?:@sha256:\w+)?$|/vllm[\w.-]*/|vllm-openai")


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """vLLM's arguments without the program's name, and the environment variables set for it."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def looks_like_command(words: Sequence[str]) -> bool:
    """Whether ``words`` are a command line rather than one model or file.

    >>> looks_like_command(["vllm", "serve", "m"]), looks_like_command(["gemma-3-27b"])
    (True, False)
    """
    words = _split(words)
    first = next((word for word in words if not _VARIABLE.fullmatch(word) and word not in ("$", "sudo")), "")
    return first in ("vllm", *_CONTAINERS) or _is_python(first) or first.endswith("/vllm") or first in _MODULES


def find_command(words: Sequence[str]) -> ServeCommand:
    """vLLM's arguments in a pasted command line; InputError where there is no vLLM in it.

    >>> find_command(["docker run -e VLLM_KV_CACHE_LAYOUT=HND --gpus all vllm/vllm-openai:v0.33.0 --model m -tp 2"])
    ServeCommand(arguments=('--model', 'm', '-tp', '2'), environment={'VLLM_KV_CACHE_LAYOUT': 'HND'})
    """
    rest = _split(words)
    environment: dict[str, str] = {}
    while rest and (rest[0] in ("$", "sudo", "env", "exec") or _VARIABLE.fullmatch(rest[0])):
        if "=" in rest[0]:
            name, _, value = rest[0].partition("=")
            environment[name] = value
        rest = rest[1:]
    if rest and rest[0] in _CONTAINERS:
        rest = _container(rest, environment)
    return ServeCommand(tuple(_arguments(rest)), environment)


def _split(words: Sequence[str]) -> list[str]:
    """The words of a shell; a command line quoted as a whole, and pasted continuations, are taken apart."""
    text = words[0] if len(words) == 1 else None
    if text is None:
        return [word for word in words if word.strip() not in ("", "\\")]
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InputError(f"not a command line a shell would take ({error}); check its quotes", where="--") from error


def _is_python(word: str) -> bool:
    return re.fullmatch(r"(\S*/)?python[\d.]*", word) is not None


def _arguments(words: list[str]) -> list[str]:
    if words and (words[0] == "vllm" or words[0].endswith("/vllm")):
        if len(words) > 1 and words[1] == "serve":
            return words[2:]
        given = words[1] if len(words) > 1 else "nothing"
        raise InputError(f"only 'vllm serve' starts a server, got {given!r}; paste that command", where="vllm")
    for at, word in enumerate(words):
        if word in _MODULES:
            return words[at + 1 :]
    if words and words[0].startswith("-"):
        return words
    raise InputError("no 'vllm serve' in it; paste the whole command after '--'", where=words[0] if words else "--")


def _container(words: list[str], environment: dict[str, str]) -> list[str]:
    """What stands behind the image, whose entry point is the server; ``-e`` variables go to ``environment``.

    An image is recognised by its name: which docker flags take a value is docker's knowledge.
    """
    for at, word in enumerate(words[1:], start=1):
        if word.startswith(("-e", "--env")):
            following = words[at + 1] if at + 1 < len(words) else ""
            name, _, value = (word.partition("=")[2] if word.startswith("--env=") else following).partition("=")
            environment[name] = value
        elif not word.startswith("-") and _IMAGE.search(word) and words[at - 1] not in _NAMING:
            return _entered(words[at + 1 :])
    raise InputError("no vLLM image in it; paste the arguments behind the image as 'vllm serve …'", where=words[0])


def _entered(arguments: list[str]) -> list[str]:
    """The arguments of an image as a command: the image's entry point is ``vllm serve`` unless they name another."""
    if arguments and (arguments[0] in ("vllm", "bash", "sh") or _is_python(arguments[0])):
        return arguments
    return ["vllm", *arguments] if arguments[:1] == ["serve"] else ["vllm", "serve", *arguments]
