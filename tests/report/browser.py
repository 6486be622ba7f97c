"""A page opened in headless Chromium: what its script shows under the pointer, and whether anything went wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
    "--allow-file-access-from-files",
)

_PROBE = """
<script>
window.faults = [];
addEventListener("error", (event) => faults.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => faults.push("refused: " + event.blockedURI));
</script>
"""

_MEASURE = """
<script>
addEventListener("load", () => {
  const tip = document.getElementById("tip"), shown = [];
  const move = (element, part) => {
    const box = element.getBoundingClientRect();
    const at = { clientX: box.left + part * box.width, clientY: box.top + box.height / 2, bubbles: true };
    element.dispatchEvent(new PointerEvent("pointermove", at));
    shown.push(tip.hidden ? null : tip.innerText);
    element.dispatchEvent(new PointerEvent("pointerleave", at));
  };
  document.querySelectorAll("figure.chart svg").forEach((svg) => move(svg, 0.6));
  document.querySelectorAll("[data-tip]").forEach((part) => move(part, 0.5));
  const sizes = [...document.querySelectorAll("svg text")].map((text) =>
    parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width / 480);
  const found = { faults, shown, hidden: tip.hidden, smallest: Math.min(...sizes), texts: sizes.length,
    width: document.documentElement.clientWidth, content: document.documentElement.scrollWidth,
    paper: getComputedStyle(document.body).backgroundColor };
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""


def opened(page: str, width: int, folder: Path, *, dark: bool = False) -> dict[str, Any]:
    """What a browser makes of ``page`` in a frame ``width`` pixels wide; files are put into ``folder``."""
    probed = page.replace("<head>", f"<head>{_PROBE}", 1).replace("</body>", f"{_MEASURE}</body>", 1)
    (folder / "probed.html").write_text(probed, encoding="utf-8")
    frame = f'<iframe src="probed.html" style="border:0;width:{width}px;height:3000px"></iframe><pre id="found"></pre>'
    listen = "addEventListener('message', (event) => { document.getElementById('found').textContent = event.data; });"
    (folder / "frame.html").write_text(f"<!doctype html><meta charset=utf-8><script>{listen}</script>{frame}")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [
        str(CHROMIUM),
        *_FLAGS,
        scheme,
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1600,1200",
        "--dump-dom",
    ]
    done = subprocess.run(
        [*command, (folder / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    match = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(unescape(match[1]))
    return {**found, "console": console}
