// Two collections: loads the pair that was worked out beforehand and shows it.
(function () {
  "use strict";
  var P = window.PKB, el = P.element, first = document.getElementById("first");
  if (!first) return;
  var second = document.getElementById("second"), tries = document.getElementById("tries"), out = document.getElementById("comparison");
  var names = P.data.names, ORDER = { better: 0, worse: 1, same: 2, "not compared": 3 };

  function speed(found) {
    return found ? [el("b", {}, P.times(found[0])), el("span", { class: "interval" }, "[" + P.times(found[1]) + ", " + P.times(found[2]) + "]")] : [el("span", { class: "none" }, "–")];
  }
  function show(pair) {
    var k = pair[tries.value] ? tries.value : Object.keys(pair)[0];
    tries.replaceChildren.apply(tries, Object.keys(pair).map(function (key) { return el("option", { value: key }, key === "1" ? "1 each" : "best of " + key); }));
    tries.value = k;
    var found = pair[k], noise = found.p >= 0.05, counts = { better: 0, worse: 0, same: 0, "not compared": 0 };
    found.rows.forEach(function (row) { counts[row[1]] += 1; });
    var tile = function (count, words, kind) { return el("div", { class: "tile" }, [el("b", { class: count ? kind : "" }, String(count)), el("span", {}, words)]); };
    var rows = found.rows.slice().sort(function (a, b) { return ORDER[a[1]] - ORDER[b[1]] || a[0] - b[0]; }).map(function (row) {
      return el("tr", { id: "pair-" + row[0], "data-href": "p/" + names[row[0]] + ".html", tabindex: "-1" }, [
        el("td", {}, [el("a", { class: "name", href: "p/" + names[row[0]] + ".html" }, P.broken(names[row[0]])), el("a", { class: "anchor", href: "#pair-" + row[0], "aria-label": "Link to pair " + row[0] }, "#")]),
        el("td", {}, [el("span", { class: row[1] === "better" ? "up" : row[1] === "worse" ? "down" : "dim" }, row[1])]),
        el("td", { class: "num" }, speed(row[3])), el("td", { class: "num" }, speed(row[4])), el("td", { class: "wide dim" }, row[2])]);
    });
    out.replaceChildren(
      el("p", { class: "summary" }, found.summary + "."),
      el("div", { class: "tiles" }, [tile(counts.better, "better", "up"), tile(counts.worse, "worse", "down"), tile(counts.same, "same", ""), tile(counts["not compared"], "not compared", ""),
        el("div", { class: "tile" }, [el("b", {}, noise ? "noise" : "real"), el("span", {}, "who solves what, p = " + found.p.toPrecision(2))])]),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "problems compared" }, [el("table", { class: "plain list" }, [el("thead", {}, [el("tr", {}, [el("th", {}, "Problem"), el("th", {}, "Answer"), el("th", { class: "num" }, "From"), el("th", { class: "num" }, "To"), el("th", { class: "wide" }, "Why")])]), el("tbody", {}, rows)])])
    );
  }
  function choose() {
    P.setSetting("first", first.value); P.setSetting("second", second.value); P.setSetting("tries", tries.value);
    if (first.value === second.value) { out.replaceChildren(el("p", { class: "dim" }, "Choose two different collections.")); return; }
    var name = first.value + "__" + second.value;
    ["csv", "json"].forEach(function (kind) { document.getElementById("pair-" + kind).href = kind + "/compare/" + name + "." + kind; });
    P.load("data/compare/" + name + ".js").then(function () { if (first.value + "__" + second.value === name) show(window.PKB_DATA["compare/" + name]); },
      function () { out.replaceChildren(el("p", { class: "note bad" }, "This pair could not be loaded.")); });
  }
  [first, second, tries].forEach(function (choice) { choice.addEventListener("change", choose); });
  document.getElementById("swap").addEventListener("click", function () { var kept = first.value; first.value = second.value; second.value = kept; choose(); });
  var asked = P.settings();
  if (asked.get("first")) first.value = asked.get("first");
  if (asked.get("second")) second.value = asked.get("second");
  choose();
})();
