"use strict";
// Timeline of a step on a canvas, drawn from the spans in the page; zoom, pan and tooltips by pointer or keyboard.
(() => {
  const NANO = 1e-9, AXIS = 24, LABEL = 19, FOOT = 10, CLOSEST = 2e-6, FIELDS = 5;
  const data = JSON.parse(document.getElementById("spans").textContent);
  const canvas = document.getElementById("timeline"), tip = document.getElementById("tip");
  const range = document.getElementById("range"), front = canvas.getContext("2d");
  const picture = document.createElement("canvas"), pen = picture.getContext("2d"); // off-screen image, reused while only the selection changes
  const rows = data.rows.map(read);
  const digits = String(rows.reduce((most, row) => row.spans.reduce((m, span) => Math.max(m, span.microbatch), most), 0)).length;
  const body = rows.length > 12 ? 24 : rows.length > 4 ? 32 : 46, pitch = LABEL + body, height = AXIS + rows.length * pitch + FOOT;
  let from = 0, until = data.step, width = 0, waiting = false, stale = true, chosen = null;

  function read(row) {
    const layers = new Map(data.order.map(kind => [kind, []])), spans = [];
    for (let at = 0, clock = 0; at < row.spans.length; at += FIELDS) {
      const [ahead, length, word, stage, microbatch] = row.spans.slice(at, at + FIELDS);
      clock += ahead;
      const [words, kind] = data.words[word];
      const span = { start: clock * NANO, end: (clock + length) * NANO, words, kind, stage, microbatch };
      layers.get(kind).push(span);
      spans.push(span);
    }
    return { label: row.label, ranks: row.ranks, layers: [...layers].filter(([, found]) => found.length), spans };
  }

  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const paint = new Map();
  function colour(name) {
    if (!paint.has(name)) paint.set(name, style(name));
    return paint.get(name);
  }
  const four = value => String(Number(value.toPrecision(4)));
  function seconds(value) {
    if (value === 0 || Math.abs(value) >= 1) return `${four(value)} s`;
    return Math.abs(value) >= 1e-3 ? `${four(value / 1e-3)} ms` : `${four(value / 1e-6)} us`;
  }

  const x = time => (time - from) / (until - from) * width;
  const time = at => from + at / width * (until - from);
  const top = row => AXIS + row * pitch + LABEL;

  function hatch() {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.fillStyle = colour("--g-bubble-0");
    brush.fillRect(0, 0, 6, 6);
    brush.strokeStyle = colour("--hatch");
    brush.beginPath();
    for (const shift of [-6, 0, 6]) { brush.moveTo(shift, 6); brush.lineTo(shift + 6, 0); }
    brush.stroke();
    return pen.createPattern(tile, "repeat");
  }

  function draw() {
    waiting = false;
    const scale = window.devicePixelRatio || 1, whole = from === 0 && until === data.step;
    if (stale) paintAll(scale);
    stale = false;
    front.setTransform(1, 0, 0, 1, 0, 0);
    front.drawImage(picture, 0, 0);
    front.setTransform(scale, 0, 0, scale, 0, 0);
    mark();
    range.textContent = whole ? `whole step: ${seconds(data.step)}` : `${seconds(from)} to ${seconds(until)} of ${seconds(data.step)}`;
    Object.assign(canvas.dataset, { from, until });
  }

  function paintAll(scale) {
    width = canvas.clientWidth;
    canvas.width = picture.width = Math.round(width * scale);
    canvas.height = picture.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colour("--page");
    pen.fillRect(0, 0, width, height);
    axis();
    const bubble = hatch();
    rows.forEach((row, index) => {
      for (const [kind, spans] of row.layers) layer(kind, spans, top(index), bubble);
      numbers(row, top(index));
      pen.fillStyle = colour("--text");
      pen.font = "12px system-ui, sans-serif";
      pen.textAlign = "left";
      pen.fillText(row.label, 4, top(index) - 5, width - 8);
    });
    pen.fillStyle = colour("--line");
    pen.fillRect(0, height - 6, width, 6);
    pen.fillStyle = colour("--muted");
    pen.fillRect(from / data.step * width, height - 6, Math.max(3, (until - from) / data.step * width), 6);
  }

  function axis() {
    const rough = (until - from) / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(rough));
    const tick = power * [1, 2, 5, 10].find(step => step * power >= rough);
    const last = Math.max(Math.abs(from), until), unit = last >= 1 ? [1, "s"] : last >= 1e-3 ? [1e-3, "ms"] : [1e-6, "us"];
    const digits = Math.max(0, -Math.floor(Math.log10(tick / unit[0] * 1.0001)));
    pen.font = "11px system-ui, sans-serif";
    for (let count = Math.ceil(from / tick); count * tick <= until; count++) {
      const at = x(count * tick), words = `${(count * tick / unit[0]).toFixed(digits)} ${unit[1]}`;
      pen.fillStyle = colour("--line");
      pen.fillRect(at, AXIS - 6, 1, height - AXIS - 2);
      pen.fillStyle = colour("--muted");
      const half = pen.measureText(words).width / 2;
      pen.textAlign = "center";
      pen.fillText(words, Math.min(Math.max(at, half + 3), width - half - 3), AXIS - 10);
    }
  }

  function layer(kind, spans, y, bubble) {
    const step = width / (until - from);
    let shade = -1;
    for (const [low, high] of data.heights[kind]) {
      const thin = high - low < 0.5, tall = (high - low) * body;
      for (const span of spans) {
        if (span.end < from || span.start > until) continue;
        const later = kind === "F" || kind === "B" || kind === "W" ? Math.floor(Math.max(span.stage, 0) / data.pp) : 0;
        if (later !== shade) pen.fillStyle = kind === "bubble" ? bubble : colour(`--g-${kind}-${later}`);
        shade = later;
        const left = Math.max((span.start - from) * step, -2), wide = Math.min((span.end - from) * step, width + 2) - left;
        const framed = !thin && wide > 4 ? 0.5 : 0;
        pen.fillRect(left, y + low * body, thin ? Math.max(wide, 0.6) : wide - framed, tall);
      }
    }
  }

  function numbers(row, y) {
    const [low, high] = data.heights.F[0];
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const [kind, spans] of row.layers) {
      if (kind !== "F" && kind !== "B" && kind !== "W") continue;
      for (const span of spans) {
        const left = Math.max(x(span.start), 0), right = Math.min(x(span.end), width), words = String(span.microbatch);
        if (right - left < 3 + 6.8 * digits) continue;
        pen.fillStyle = colour(`--g-${kind}-${Math.floor(Math.max(span.stage, 0) / data.pp)}-ink`);
        pen.fillText(words, (left + right) / 2, y + (low + high) / 2 * body + 4);
      }
    }
  }

  function mark() {
    if (!chosen) return;
    const [low, high] = data.heights[chosen.span.kind][0], left = x(chosen.span.start);
    front.strokeStyle = colour("--text");
    front.lineWidth = 2;
    front.strokeRect(left, top(chosen.row) + low * body, Math.max(x(chosen.span.end) - left, 1), (high - low) * body);
  }

  function soon(again = true) {
    stale ||= again;
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  function show(start, end) {
    const length = Math.min(Math.max(end - start, CLOSEST), data.step);
    from = Math.min(Math.max(start, 0), data.step - length);
    until = length === data.step ? data.step : from + length;
    soon();
  }
  function zoom(factor, about = (from + until) / 2) {
    show(about - (about - from) / factor, about + (until - about) / factor);
  }
  const move = part => show(from + part * (until - from), until + part * (until - from));

  function find(px, py) {
    const row = Math.floor((py - AXIS) / pitch), part = (py - AXIS - row * pitch - LABEL) / body;
    if (!rows[row] || part < 0) return null;
    const at = time(px), near = 3 * (until - from) / width;
    let best = null, closest = Infinity;
    for (const [kind, spans] of [...rows[row].layers].reverse()) {
      if (!data.heights[kind].some(([low, high]) => part >= low - 0.03 && part <= high + 0.03)) continue;
      for (const span of spans) {
        const away = Math.max(span.start - at, at - span.end, 0);
        if (away <= near && away < closest) [best, closest] = [{ row, span }, away];
      }
    }
    return best;
  }

  function tell(found, px, py) {
    chosen = found;
    tip.hidden = !found;
    if (found) {
      const { span, row } = found, head = document.createElement("b");
      head.textContent = span.words + (span.microbatch >= 0 ? ` of microbatch ${span.microbatch}` : "");
      const stage = span.stage >= 0 ? `stage ${span.stage}, ` : "";
      const times = `${seconds(span.start)} to ${seconds(span.end)}: ${seconds(span.end - span.start)}`;
      tip.replaceChildren(head, `${stage}${rows[row].ranks}\n${times}`);
      tip.style.left = `${Math.max(0, Math.min(px + 14, canvas.clientWidth - tip.offsetWidth))}px`;
      tip.style.top = `${py + 18}px`;
    }
    soon(false);
  }

  // pointers: one pressed pans, two pressed zoom, none pressed shows the tooltip
  const down = new Map();
  const place = event => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointerdown", event => {
    down.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    tell(find(...place(event)), ...place(event));
  });
  canvas.addEventListener("pointermove", event => {
    const now = place(event), before = down.get(event.pointerId);
    if (!before) return tell(find(...now), ...now);
    if (down.size === 1) {
      if (now[0] !== before[0]) tip.hidden = true;
      move((before[0] - now[0]) / width);
    } else {
      const other = [...down].find(([id]) => id !== event.pointerId)[1];
      const apart = Math.abs(now[0] - other[0]) / Math.max(Math.abs(before[0] - other[0]), 1);
      zoom(Math.min(Math.max(apart, 0.5), 2), time((now[0] + other[0]) / 2));
    }
    down.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, event => down.delete(event.pointerId));
  canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") tell(null); });
  canvas.addEventListener("dblclick", event => zoom(event.shiftKey ? 0.5 : 2, time(event.offsetX)));
  canvas.addEventListener("wheel", event => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 300), time(event.offsetX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / width);
    else return;
    event.preventDefault();
  }, { passive: false });

  const actions = { in: () => zoom(2), out: () => zoom(0.5), left: () => move(-0.5), right: () => move(0.5), all: () => show(0, data.step) };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);

  function walk(rowStep, spanStep) {
    const row = Math.min(Math.max((chosen ? chosen.row : 0) + rowStep, 0), rows.length - 1), spans = rows[row].spans;
    let index = chosen && !rowStep ? spans.indexOf(chosen.span) + spanStep : spans.findIndex(span => span.end > (chosen ? chosen.span.start : from));
    index = Math.min(Math.max(index, 0), spans.length - 1);
    const span = spans[index];
    if (span.start < from || span.end > until) show(span.start - (until - from) / 2, span.start + (until - from) / 2);
    tell({ row, span }, x(span.start), top(row) + body - 12);
  }
  const keys = {
    "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.all, Home: actions.all, Escape: () => tell(null),
    ArrowLeft: () => walk(0, -1), ArrowRight: () => walk(0, 1), ArrowUp: () => walk(-1, 0), ArrowDown: () => walk(1, 0),
  };
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => tell(null));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint.clear(); soon(); });
  new ResizeObserver(() => soon()).observe(canvas);
  draw();
})();
