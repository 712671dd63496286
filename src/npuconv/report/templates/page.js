(function () {
"use strict";
var SVG_PADDING = 12, LARGEST = 2.2;

function each(list, act) { Array.prototype.forEach.call(list, act); }
function within(value, low, high) { return Math.min(Math.max(value, low), high); }
function make(tag, text, css) {
  var made = document.createElement(tag);
  made.textContent = text;
  if (css) { made.className = css; }
  return made;
}

// One graph: what is in view, which box is picked, which boxes the search has found.
function Graph(root) {
  var svg = root.querySelector("svg"), canvas = root.querySelector(".canvas");
  var about = root.querySelector(".about"), self = this;
  var data = JSON.parse(root.querySelector("script").textContent);
  var size = svg.viewBox.baseVal, all = { w: size.width, h: size.height };
  var boxes = svg.querySelectorAll(".box"), lines = {}, view, picked = -1, hits = null;
  var frames = Array.prototype.map.call(boxes, function (box) {
    var at = box.transform.baseVal.getItem(0).matrix, rect = box.querySelector("rect");
    return { x: at.e, y: at.f, w: rect.width.baseVal.value, h: rect.height.baseVal.value };
  });
  var findings = [];
  each(svg.querySelectorAll("[data-from]"), function (line) { lines[line.dataset.from] = line; });
  each(boxes, function (box, at) {
    box.dataset.at = at;
    if (box.matches(".error, .warning, .changed")) { findings.push(at); }
  });
  this.byName = {};
  data.cards.forEach(function (card, at) {
    card.names.forEach(function (name) { if (!(name in self.byName)) { self.byName[name] = at; } });
  });
  this.texts = data.cards.map(function (card) {
    var rows = card.rows.concat(card.findings).map(function (row) { return row[1]; });
    return [card.title, card.name].concat(card.names, rows).join(" ").toLowerCase();
  });

  function show() {
    var wide = canvas.clientWidth || 1, high = canvas.clientHeight || 1;
    view.h = view.w * high / wide;
    svg.setAttribute("viewBox", [view.x, view.y, view.w, view.h].join(" "));
    var scale = wide / view.w;
    svg.classList.toggle("brief", scale < 0.62 && scale >= 0.2);
    svg.classList.toggle("tiny", scale < 0.2);
  }
  function fit() {
    var ratio = (canvas.clientWidth || 1) / (canvas.clientHeight || 1);
    var wide = Math.max(all.w + 2 * SVG_PADDING, (all.h + 2 * SVG_PADDING) * ratio, canvas.clientWidth / 1.25);
    view = { x: (all.w - wide) / 2, w: wide, y: 0 };
    view.y = (all.h - wide / ratio) / 2;
    show();
  }
  function zoom(factor, x, y) {
    var wide = canvas.clientWidth, high = canvas.clientHeight;
    if (x === undefined) { x = wide / 2; y = high / 2; }
    var most = Math.max(all.w, all.h * wide / high) * 1.5 + wide;
    var next = within(view.w / factor, wide / LARGEST, most), scale = view.w / wide;
    view.x += x * scale - x * next / wide;
    view.y += y * scale - y * next / wide;
    view.w = next;
    show();
  }
  function move(dx, dy) {
    var scale = view.w / canvas.clientWidth;
    view.x = within(view.x - dx * scale, -view.w * 0.9, all.w - view.w * 0.1);
    view.y = within(view.y - dy * scale, -view.h * 0.9, all.h - view.h * 0.1);
    show();
  }
  function look(at) {
    var frame = frames[at], wide = canvas.clientWidth;
    if (wide / view.w < 0.75) { view.w = wide; }
    view.h = view.w * canvas.clientHeight / wide;
    view.x = frame.x + frame.w / 2 - view.w / 2;
    view.y = frame.y + frame.h / 2 - view.h / 2;
    show();
  }
  function tell(card) {
    about.textContent = "";
    about.appendChild(make("h4", card.title));
    var list = about.appendChild(make("dl", ""));
    (card.rows.length ? card.rows : [["tensor", card.name]]).forEach(function (row) {
      list.appendChild(make("dt", row[0]));
      list.appendChild(make("dd", row[1]));
    });
    var found = about.appendChild(make("ul", ""));
    card.findings.forEach(function (row) {
      var item = found.appendChild(make("li", ""));
      item.appendChild(make("span", row[0], "tag " + row[0]));
      var text = make(row[2] ? "a" : "span", row[1]);
      if (row[2]) { text.href = "#" + row[2] + root.dataset.suffix; }
      item.appendChild(text);
    });
    var close = about.appendChild(make("button", "\u00d7"));
    close.type = "button";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", function () { pick(-1); });
    about.hidden = false;
  }
  function pick(at) {
    each(svg.querySelectorAll(".sel, .near, .on"), function (one) { one.classList.remove("sel", "near", "on"); });
    picked = at;
    if (at < 0) { about.hidden = true; return; }
    boxes[at].classList.add("sel");
    if (lines[at]) { lines[at].classList.add("on"); }
    data.edges.forEach(function (edge) {
      if (edge[0] === at) { boxes[edge[1]].classList.add("near"); }
      if (edge[1] === at) { boxes[edge[0]].classList.add("near"); }
    });
    tell(data.cards[at]);
  }
  function step(by) {
    var list = hits && hits.length ? hits : findings;
    if (!list.length) { list = data.cards.map(function (_, at) { return at; }); }
    var place = list.indexOf(picked);
    if (place < 0) { place = by > 0 ? -1 : 0; }
    self.go(list[(place + by + list.length) % list.length]);
  }

  this.go = function (at, scroll) {
    pick(at);
    look(at);
    if (scroll) { root.scrollIntoView({ block: "center" }); }
  };
  this.step = step;
  this.find = function (words) {
    hits = null;
    svg.classList.toggle("searching", words.length > 0);
    each(boxes, function (box, at) {
      var hit = words.length > 0 && words.every(function (word) { return self.texts[at].includes(word); });
      box.classList.toggle("hit", hit);
      if (hit) { (hits = hits || []).push(at); }
    });
    if (words.length && !hits) { hits = []; }
    return hits ? hits.length : 0;
  };

  var acts = {
    in: function () { zoom(1.4); }, out: function () { zoom(1 / 1.4); }, fit: fit,
    next: function () { step(1); }, previous: function () { step(-1); }
  };
  root.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-do]");
    if (button) { acts[button.dataset.do](); }
  });
  var colours = root.querySelector("select");
  if (colours) colours.addEventListener("change", function (event) {
    root.dataset.colour = event.target.value;
    svg.setAttribute("class", event.target.value);
    show();
    self.find(query());
    if (picked >= 0) { pick(picked); }
  });
  canvas.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    var keys = {
      ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]
    }, named = { "+": "in", "=": "in", "-": "out", "0": "fit", n: "next", p: "previous" };
    if (keys[event.key]) { move(keys[event.key][0], keys[event.key][1]); }
    else if (named[event.key]) { acts[named[event.key]](); }
    else if (event.key === "Escape") { pick(-1); }
    else { return; }
    event.preventDefault();
  });
  canvas.addEventListener("wheel", function (event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) { return; }
    event.preventDefault();
    var frame = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });

  var fingers = {}, moved = 0;
  canvas.addEventListener("pointerdown", function (event) {
    if (event.button) { return; }
    fingers[event.pointerId] = [event.clientX, event.clientY];
    if (Object.keys(fingers).length === 1) { moved = 0; }
  });
  canvas.addEventListener("pointermove", function (event) {
    var last = fingers[event.pointerId], ids = Object.keys(fingers);
    if (!last) { return; }
    var x = event.clientX, y = event.clientY;
    if (ids.length === 2) {
      var other = fingers[ids[0] === String(event.pointerId) ? ids[1] : ids[0]];
      var frame = canvas.getBoundingClientRect();
      var before = Math.hypot(last[0] - other[0], last[1] - other[1]);
      zoom(Math.hypot(x - other[0], y - other[1]) / (before || 1), other[0] - frame.left, other[1] - frame.top);
      moved = 99;
    } else {
      moved += Math.abs(x - last[0]) + Math.abs(y - last[1]);
      if (moved > 4) {
        canvas.classList.add("moving");
        canvas.setPointerCapture(event.pointerId);
        move(x - last[0], y - last[1]);
      }
    }
    fingers[event.pointerId] = [x, y];
  });
  function lift(event) {
    delete fingers[event.pointerId];
    canvas.classList.remove("moving");
  }
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", lift);
  canvas.addEventListener("click", function (event) {
    if (moved > 4) { return; }
    var box = event.target.closest(".box");
    pick(box ? Number(box.dataset.at) : -1);
  });
  canvas.addEventListener("dblclick", function (event) {
    var frame = canvas.getBoundingClientRect();
    zoom(2, event.clientX - frame.left, event.clientY - frame.top);
  });
  window.addEventListener("resize", function () { show(); });
  window.addEventListener("beforeprint", function () {
    svg.setAttribute("viewBox", [0, 0, all.w, all.h].join(" "));
  });
  window.addEventListener("afterprint", show);

  root.dataset.ready = "";
  root.dataset.colour = "place";
  if (canvas.clientWidth < 600 && canvas.clientWidth / all.w > 0.3) {  // on a phone no taller than it must be
    var high = canvas.clientWidth * (all.h + 2 * SVG_PADDING) / (all.w + 2 * SVG_PADDING);
    svg.style.height = within(high, 160, canvas.clientHeight) + "px";
  }
  fit();
  if (canvas.clientWidth < 600 && canvas.clientWidth / view.w < 0.3) {  // or large enough to be read
    view = { x: -SVG_PADDING, y: -SVG_PADDING, w: canvas.clientWidth / 0.4 };
    show();
  }
}

// Names that stand in a graph lead to it; each has an address that can be passed on.
function link(article, graph, prefix) {
  function known(name) {
    if (name in graph.byName) { return graph.byName[name]; }
    return graph.byName[name.replace(/ \(\d+ of \d+\)$/, "")];
  }
  each(article.querySelectorAll("code.n"), function (element) {
    var name = element.textContent;
    if (known(name) === undefined) { return; }
    var anchor = make("a", name);
    anchor.href = prefix + encodeURIComponent(name);
    anchor.dataset.node = name;
    element.textContent = "";
    element.appendChild(anchor);
  });
  each(article.querySelectorAll("[data-node]"), function (element) {
    if (known(element.dataset.node) !== undefined) { element.classList.add("go"); }
  });
  article.addEventListener("click", function (event) {
    var element = event.target.closest("[data-node]");
    var at = element ? known(element.dataset.node) : undefined;
    if (at === undefined) { return; }
    event.preventDefault();
    if (element.href) { history.replaceState(null, "", element.getAttribute("href")); }
    graph.go(at, true);
  });
  function arrive() {
    if (!location.hash.startsWith(prefix)) { return; }
    var name = location.hash.slice(prefix.length);
    try { name = decodeURIComponent(name); } catch (error) { return; }
    if (known(name) !== undefined) { graph.go(known(name), true); }
  }
  window.addEventListener("hashchange", arrive);
  arrive();
}

var input = document.getElementById("search"), output = document.getElementById("hits");
var graphs = [], rows, folds;

function query() { return input.value.toLowerCase().split(/\s+/).filter(Boolean); }

// The text of every row, read once; that of a rule counts for each of its findings.
function prepare() {
  rows = Array.prototype.map.call(document.querySelectorAll(".f"), function (row) {
    var rule = row.parentNode.querySelector(":scope > .rule");
    return { row: row, text: ((rule ? rule.textContent + " " : "") + row.textContent).toLowerCase() };
  });
  folds = Array.prototype.map.call(document.querySelectorAll("details"), function (fold) {
    return { fold: fold, open: fold.open };
  });
}
function search() {
  var words = query(), count = 0;
  if (words.length) { document.dispatchEvent(new Event("unfold")); }
  if (!rows) { prepare(); }
  rows.forEach(function (one) {
    var hit = words.every(function (word) { return one.text.includes(word); });
    one.row.hidden = !hit;
    count += hit ? 1 : 0;
  });
  each(document.querySelectorAll(".findings > tbody"), function (group) {
    group.hidden = !group.querySelector(".f:not([hidden])");
  });
  folds.forEach(function (one) {
    one.fold.open = words.length ? !one.fold.matches(".names") && !!one.fold.querySelector(".f:not([hidden])") : one.open;
  });
  each(document.querySelectorAll("section"), function (section) {
    var here = section.querySelectorAll(".f");
    var none = here.length && !section.querySelector(".f:not([hidden])");
    section.classList.toggle("nothing", Boolean(words.length && none));
  });
  var nodes = graphs.reduce(function (sum, graph) { return sum + graph.find(words); }, 0);
  output.textContent = words.length ? count + (count === 1 ? " row, " : " rows, ") + nodes + " in the graph" : "";
}
var waiting = 0;
input.addEventListener("input", function () {
  clearTimeout(waiting);
  waiting = setTimeout(search, 80);
});
input.addEventListener("keydown", function (event) {
  if (event.key === "Escape") { input.value = ""; search(); input.blur(); }
  if (event.key === "Enter" && graphs.length) { search(); graphs[0].step(event.shiftKey ? -1 : 1); }
});
document.addEventListener("keydown", function (event) {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    input.focus();
  }
});
each(document.querySelectorAll("article"), function (article) {
  var root = article.querySelector("[data-graph]"), before = article.querySelector("[data-before]");
  if (!root) { return; }
  var graph = new Graph(root);
  graphs.push(graph);
  link(article, graph, "#node" + article.id.replace("report-", "-").replace("report", "") + "=");
  if (before) {  // it has no size until it is opened
    before.parentNode.addEventListener("toggle", function () { graphs.push(new Graph(before)); }, { once: true });
  }
});
})();
