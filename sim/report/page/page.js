"use strict";
// Shows the numbers under the pointer: of a chart at its place on the x axis, of a bar's part by its own text.
(() => {
  const tip = document.getElementById("tip");
  const show = (lines, event) => {
    tip.replaceChildren(...lines.map((line) => {
      const row = document.createElement("div");
      row.textContent = line;
      return row;
    }));
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const left = Math.min(event.pageX + 14, window.scrollX + width - tip.offsetWidth - 6);
    tip.style.left = Math.max(left, 4) + "px";
    tip.style.top = event.pageY + 16 + "px";
  };
  const number = (value) => Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  // The last point at or before x: values last until the next point.
  const at = (series, x) => {
    let low = 0, high = series.x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (series.x[middle] <= x) low = middle + 1; else high = middle;
    }
    return low ? series.y[low - 1] : null;
  };
  for (const figure of document.querySelectorAll("figure.chart")) {
    const svg = figure.querySelector("svg"), script = figure.querySelector("script");
    if (!svg || !script) continue;
    const data = JSON.parse(script.textContent), rule = svg.querySelector(".rule");
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const place = (event.clientX - box.left) * data.width / box.width;
      const part = (place - data.left) / (data.right - data.left);
      if (part < 0 || part > 1) return leave();
      const x = data.log ? data.low * (data.high / data.low) ** part : data.low + part * (data.high - data.low);
      rule.setAttribute("x1", place);
      rule.setAttribute("x2", place);
      rule.style.visibility = "visible";
      const lines = data.series.map((series) => [series.name, at(series, x)]).filter(([, y]) => y !== null);
      show([data.x + ": " + number(x), ...lines.map(([name, y]) => name + ": " + number(y) + " " + data.y)], event);
    });
    const leave = () => { tip.hidden = true; rule.style.visibility = "hidden"; };
    svg.addEventListener("pointerleave", leave);
  }
  for (const part of document.querySelectorAll("[data-tip]")) {
    part.addEventListener("pointermove", (event) => show([part.dataset.tip], event));
    part.addEventListener("pointerleave", () => { tip.hidden = true; });
    part.addEventListener("focus", () => {
      const box = part.getBoundingClientRect();
      show([part.dataset.tip], { pageX: box.left + window.scrollX, pageY: box.bottom + window.scrollY - 12 });
    });
    part.addEventListener("blur", () => { tip.hidden = true; });
  }
})();
