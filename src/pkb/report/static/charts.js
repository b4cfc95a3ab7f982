// Charts. Plotly is heavy, so it is loaded when the first chart comes into view, once, from beside this page.
(function () {
  "use strict";
  var P = window.PKB, data = P.chartData;
  var SERIES = ["#2b5fd9", "#d9730d", "#1a7f4b", "#b5316a", "#7a4fc0", "#2a9d8f", "#b5893b", "#c62f3b", "#5b8c2a", "#3a7ca5", "#8a5a2b", "#646a73"];
  function tone(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function mode(name) { return tone("--m-" + name); }
  // Plotly reads a small part of HTML in texts (b, i, a, sub): names come from models, so the signs that begin it are replaced.
  function text(value) { return P.visible(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); }
  function cut(value, length) { value = String(value); return text(value.length > length ? value.slice(0, length - 1) + "…" : value); }
  function merge(base, more) {
    Object.keys(more).forEach(function (key) {
      base[key] = base[key] && more[key] && typeof more[key] === "object" && !Array.isArray(more[key]) ? merge(base[key], more[key]) : more[key];
    });
    return base;
  }
  function layout(more) {
    var axis = function () { return { gridcolor: tone("--line"), zerolinecolor: tone("--line"), linecolor: tone("--strong"), tickfont: { color: tone("--dim"), size: 12 }, title: { font: { color: tone("--dim"), size: 12.5 } }, automargin: true }; };
    return merge({ paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", color: tone("--ink"), size: 12.5 }, margin: { l: 60, r: 18, t: 18, b: 50 }, xaxis: axis(), yaxis: axis(), legend: { font: { size: 12 }, bgcolor: "rgba(0,0,0,0)" }, hoverlabel: { font: { family: "system-ui, sans-serif" } }, barmode: "stack", bargap: 0.35 }, more);
  }
  function below() { return { legend: { orientation: "h", y: -0.18, x: 0, yanchor: "top" } }; }
  function placeWords(conditions) { return [conditions.platform, conditions.hardware].map(function (said) { return said.join(" / "); }).filter(Boolean).join(", "); }
  function us(samples) { return [].concat.apply([], samples || []); }

  var DRAW = {
    curves: function () {
      var views = { single: "solid", best: "dash", agent: "solid" };
      var traces = data.curves.rows.filter(function (row) { return row.curve.length; }).map(function (row, index) {
        return { type: "scatter", mode: "lines+markers", marker: { size: 5 }, line: { width: 2, dash: views[row.view], color: SERIES[index % SERIES.length] }, x: row.curve.map(function (p) { return p[0]; }), y: row.curve.map(function (p) { return p[1]; }),
          customdata: row.curve.map(function (p) { return [p[2], p[3]]; }), name: cut(row.name, 34) + (row.k > 1 ? ", best of " + row.k : "") + "<br>" + cut(placeWords(row.conditions), 40), hovertemplate: "p = %{x}: %{y:.1%} [%{customdata[0]:.1%}, %{customdata[1]:.1%}]<extra>" + cut(row.name, 30) + "</extra>" };
      });
      traces = traces.concat((data.curves.published || []).map(function (row) {
        return { type: "scatter", mode: "lines", line: { dash: "dot", width: 1.4, color: tone("--dim") }, opacity: 0.75, x: row.curve.map(function (p) { return p[0]; }), y: row.curve.map(function (p) { return p[1]; }), name: cut(row.name, 30) + "<br>published, not measured here", hovertemplate: "p = %{x}: %{y:.1%}<extra>" + cut(row.name, 30) + ", published</extra>" };
      }));
      return [traces, layout({ xaxis: { title: { text: "p" } }, yaxis: { title: { text: "share of problems" }, tickformat: ".0%", rangemode: "tozero" }, shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: tone("--strong"), width: 1, dash: "dot" } }] })];
    },
    modes: function () { return bars(data.modes.rows, data.modes.modes.map(function (pair) { return [pair[0], pair[1], mode(pair[0])]; }), function (row) { return row.counts; }, true); },
    communication: function () { return bars(data.paths.rows, [["custom", "own kernels", mode("correct")], ["library", "library", mode("race")], ["none", "none", mode("runtime")], ["unknown", "unknown", mode("unsupported")]], function (row) { return row.communication; }, false); },
    paths: function () {
      var made = bars(data.paths.rows, data.paths.paths.map(function (name, index) { return [name, name, SERIES[index % SERIES.length]]; }), function (row) { return row.paths; }, false);
      made[1].barmode = "group";
      return made;
    },
    progress: function () {
      var traces = [], shapes = [];
      data.progress.forEach(function (one, index) {
        var color = SERIES[index % SERIES.length], x = one.correct.map(function (_, step) { return step + 1; });
        traces.push({ type: "scatter", mode: "lines", line: { shape: "hv", width: 2.2, color: color }, x: x, y: one.correct.map(function (n) { return n / one.tries; }), name: cut(one.name, 30) + ", correct<br>" + cut(placeWords(one.conditions), 40) });
        traces.push({ type: "scatter", mode: "lines", line: { shape: "hv", width: 1.6, dash: "dot", color: color }, x: x, y: one.faster.map(function (n) { return n / one.tries; }), name: cut(one.name, 30) + ", faster" });
        if (one.plateau) traces.push({ type: "scatter", mode: "markers+text", x: [one.plateau], y: [one.correct[one.plateau - 1] / one.tries], text: ["plateau"], textposition: "top center", textfont: { color: color, size: 11 }, marker: { size: 9, color: color, symbol: "diamond" }, showlegend: false, hovertemplate: "no more after step %{x}<extra>" + cut(one.name, 30) + "</extra>" });
      });
      return [traces, layout({ xaxis: { title: { text: "steps" }, rangemode: "tozero", dtick: 5 }, yaxis: { title: { text: "share of tries" }, tickformat: ".0%", rangemode: "tozero" }, shapes: shapes })];
    },
    histogram: function () {
      var t = data.times, all = us(t.reference).concat(us(t.candidate)).sort(function (a, b) { return a - b; }), high = all[Math.floor(all.length * 0.98)];
      var trace = function (values, name, color) { return { type: "histogram", x: values.filter(function (v) { return v <= high; }), name: name, marker: { color: color }, opacity: 0.65, nbinsx: 60 }; };
      var shapes = [], notes = [];
      [["ideal", "ideal"], ["floor", "floor"]].forEach(function (pair) {
        if (t[pair[0]] && t[pair[0]] > all[0] / 20) { shapes.push({ type: "line", x0: t[pair[0]], x1: t[pair[0]], yref: "paper", y0: 0, y1: 1, line: { color: tone("--dim"), width: 1, dash: "dash" } }); notes.push({ x: t[pair[0]], yref: "paper", y: 1, text: pair[1], showarrow: false, xanchor: "left", font: { size: 11, color: tone("--dim") } }); }
      });
      return [[trace(us(t.reference), "reference", tone("--dim")), trace(us(t.candidate), "candidate", tone("--accent"))], layout(merge({ barmode: "overlay", bargap: 0.02, xaxis: { title: { text: "µs a call (without the slowest 2 %)" } }, yaxis: { title: { text: "calls" } }, shapes: shapes, annotations: notes }, { legend: { orientation: "h", y: 1.12, x: 1, xanchor: "right" } }))];
    },
    calls: function () {
      var t = data.times;
      var trace = function (rounds, name, color) {
        var x = [], y = [], at = 0;
        (rounds || []).forEach(function (calls) { calls.forEach(function (v) { x.push(at++); y.push(v); }); x.push(null); y.push(null); at += 4; });
        return { type: "scatter", mode: "markers", marker: { size: 4, color: color, opacity: 0.75 }, x: x, y: y, name: name };
      };
      return [[trace(t.reference, "reference", tone("--dim")), trace(t.candidate, "candidate", tone("--accent"))], layout({ xaxis: { title: { text: "call; a gap is a new round" }, showgrid: false }, yaxis: { title: { text: "µs" }, type: "log" }, legend: { orientation: "h", y: 1.12, x: 1, xanchor: "right" } })];
    },
    cases: function () {
      // Cases at whole numbers, candidates beside each other around them, limits as lines across.
      var cases = data.cases, groups = {}, traces = [], across = 0.36;
      var labels = cases.map(function (one) { return text(one.size + ", " + one.ranks + " ranks, " + one.dtype) + "<br>" + cut(one.platform + ", " + one.hardware, 30); });
      var middle = function (values) { values = values.slice().sort(function (a, b) { return a - b; }); return values[Math.floor(values.length / 2)]; };
      var line = function (name, color, dash, value) {
        var x = [], y = [];
        cases.forEach(function (one, index) { var at = value(one); if (at) { x.push(index - across, index + across, null); y.push(at, at, null); } });
        if (x.length) traces.push({ type: "scatter", mode: "lines", name: name, line: { color: color, width: 2, dash: dash }, x: x, y: y, hovertemplate: "%{y:.4g} µs<extra>" + name + "</extra>" });
      };
      line("reference", tone("--ink"), "solid", function (one) { return middle(one.reference); });
      line("reachable limit", mode("race"), "dash", function (one) { return one.roofline && one.roofline.reachable_us; });
      line("ideal limit", mode("mismatch"), "dot", function (one) { return one.roofline && one.roofline.ideal_us; });
      cases.forEach(function (one, index) { one.points.forEach(function (point) { (groups[point.name] = groups[point.name] || []).push([index, point]); }); });
      var names = Object.keys(groups), step = Math.min(0.14, 0.6 / Math.max(1, names.length));
      names.forEach(function (name, number) {
        var found = groups[name], shift = (number - (names.length - 1) / 2) * step;
        traces.push({ type: "scatter", mode: "markers", name: cut(name, 34), marker: { size: 9, color: SERIES[number % SERIES.length], symbol: found.map(function (f) { return f[1].communication === "library" ? "circle-open" : "circle"; }) }, x: found.map(function (f) { return f[0] + shift; }), y: found.map(function (f) { return f[1].us; }),
          error_y: { type: "data", symmetric: false, thickness: 1, width: 3, array: found.map(function (f) { return Math.max(0, (f[1].high || f[1].us) - f[1].us); }), arrayminus: found.map(function (f) { return Math.max(0, f[1].us - (f[1].low || f[1].us)); }) },
          customdata: found.map(function (f) { return [f[1].speedup, f[1].slug]; }), hovertemplate: "%{y:.4g} µs, %{customdata[0]:.2f}×<extra>" + cut(name, 30) + "</extra>" });
      });
      return [traces, layout({ yaxis: { type: "log", title: { text: "µs a call" }, dtick: "D2" }, xaxis: { tickmode: "array", tickvals: cases.map(function (_, index) { return index; }), ticktext: labels, range: [-0.6, cases.length - 0.4], showgrid: false, zeroline: false } })];
    },
    roof: function () {
      var traces = [], roofs = data.roofs, low = Math.min.apply(null, roofs.map(function (r) { return r.intensity; })) / 30, high = Math.max.apply(null, roofs.map(function (r) { return Math.max(r.intensity, r.peak / r.link); })) * 30, seen = {};
      roofs.forEach(function (r, index) {
        [["peak", "link", "solid", "datasheet"], ["reachable_peak", "reachable_link", "dash", "reachable"]].forEach(function (pair) {
          var key = [r.hardware, r[pair[0]], pair[3]].join();
          if (seen[key]) return;
          seen[key] = true;
          var ridge = r[pair[0]] / r[pair[1]];
          traces.push({ type: "scatter", mode: "lines", line: { color: pair[2] === "solid" ? tone("--ink") : tone("--dim"), width: 1.4, dash: pair[2] }, x: [low, ridge, high], y: [low * r[pair[1]], r[pair[0]], r[pair[0]]], name: text(r.hardware + ", " + pair[3]), hoverinfo: "skip" });
        });
        traces.push({ type: "scatter", mode: "markers", marker: { symbol: "x", size: 9, color: tone("--ink") }, x: [r.intensity], y: [r.flops / r.reference_us * 1e6], name: "reference", showlegend: index === 0, hovertemplate: "reference: %{y:.3s}FLOP/s<extra>" + text(r.label) + "</extra>" });
        traces.push({ type: "scatter", mode: "markers", marker: { size: 9, color: SERIES[index % SERIES.length], line: { width: 1, color: tone("--panel") } }, x: r.points.map(function () { return r.intensity; }), y: r.points.map(function (p) { return r.flops / p.us * 1e6; }), text: r.points.map(function (p) { return cut(p.name, 30); }), name: text(r.label), hovertemplate: "%{text}: %{y:.3s}FLOP/s<extra></extra>" });
      });
      return [traces, layout({ xaxis: { type: "log", dtick: 1, title: { text: "FLOPs per byte over the link" } }, yaxis: { type: "log", title: { text: "FLOP/s" }, tickformat: ".2s", dtick: 1 } })];
    }
  };
  ["candidate", "reference"].forEach(function (side) {
    DRAW["timeline-" + side] = function () {
      var roles = { communication: mode("race"), compute: tone("--accent"), fused: mode("deadlock") };
      var traces = Object.keys(roles).map(function (role) {
        var base = [], x = [], y = [], names = [];
        data.timeline[side].forEach(function (rank) { rank.records.forEach(function (record) { if (record[3] === role) { base.push(record[0]); x.push(record[1]); y.push("rank " + rank.rank); names.push(cut(record[2], 70)); } }); });
        return { type: "bar", orientation: "h", base: base, x: x, y: y, text: names, textposition: "none", name: role, marker: { color: roles[role] }, opacity: 0.85, hovertemplate: "%{text}<br>%{base:.2f} µs, for %{x:.2f} µs<extra>" + role + "</extra>" };
      }).filter(function (trace) { return trace.x.length; });
      return [traces, layout({ barmode: "overlay", bargap: 0.25, xaxis: { title: { text: "µs from the rank's first record" } }, yaxis: { autorange: "reversed", type: "category" }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 1, xanchor: "right" }, margin: { t: 30 } })];
    };
  });
  function bars(rows, parts, counts, linked) {
    var names = rows.map(function (row) { return cut(row.name, 30) + (row.published ? " (published)" : ""); }), ids = rows.map(function (_, index) { return index; });
    var totals = rows.map(function (row) { return row.samples || 1; });
    var traces = parts.map(function (part) {
      var values = rows.map(function (row) { return counts(row)[part[0]] || 0; });
      return { type: "bar", orientation: "h", y: ids, x: values.map(function (value, index) { return value / totals[index]; }), customdata: values, name: text(part[1]), marker: { color: part[2], opacity: rows.map(function (row) { return row.published ? 0.55 : 1; }) }, hovertemplate: "%{customdata} (%{x:.0%})<extra>" + text(part[1]) + "</extra>", meta: linked ? part[0] : null };
    }).filter(function (trace) { return trace.customdata.some(Boolean); });
    return [traces, layout(merge({ xaxis: { tickformat: ".0%", range: [0, 1.001], side: "top" }, yaxis: { autorange: "reversed", tickmode: "array", tickvals: ids, ticktext: names }, margin: { t: 30, b: 10 } }, merge(below(), { legend: { y: -0.02, traceorder: "normal" } })))];
  }

  function draw(box) {
    P.load(P.root + "static/plotly.min.js").then(function () {
      var made = DRAW[box.dataset.chart]();
      if (box.clientWidth < 560 && made[1].legend && !made[1].legend.orientation) merge(made[1], below());
      window.Plotly.react(box, made[0], made[1], { responsive: true, displayModeBar: false }).then(function () {
        box.dataset.drawn = "yes";
      });
      if (!box.dataset.wired) {
        box.dataset.wired = "yes";
        box.on("plotly_click", function (event) {
          var point = event.points[0];
          if (box.dataset.chart === "modes" && !data.modes.rows[point.pointIndex].published) location.href = "verdicts.html#contender=" + encodeURIComponent(data.modes.rows[point.pointIndex].name) + "&mode=" + point.data.meta;
          else if (box.dataset.chart === "cases" && point.customdata) location.href = P.root + "c/" + point.customdata[1] + ".html";
        });
      }
    }, function (error) { box.textContent = error.message; });
  }
  var boxes = Array.from(document.querySelectorAll("[data-chart]"));
  var seen = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) { if (entry.isIntersecting) { seen.unobserve(entry.target); entry.target.dataset.seen = "yes"; draw(entry.target); } });
  }, { rootMargin: "200px" });
  boxes.forEach(function (box) { seen.observe(box); });
  document.addEventListener("pkb-theme", function () { boxes.filter(function (box) { return box.dataset.seen; }).forEach(draw); });
})();
