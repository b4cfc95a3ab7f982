// The table of verdicts: thousands of rows as compact data, drawn a page at a time. State lives behind the #, so it can be linked.
(function () {
  "use strict";
  var P = window.PKB, el = P.element;
  // As VERDICT_MODE in words.py; a test compares the two.
  var VERDICT_MODE = { correct: "correct", wrong: "mismatch", race: "race", reused_output: "reused_output", deadlock: "deadlock", compile_error: "compile", load_error: "name", runtime_error: "runtime", crash: "runtime", rejected: "rejected", unsupported: "unsupported", harness_error: "harness_error", no_answer: "no_answer" };
  var FILTERS = [["contender", "All collections"], ["verdict", "All verdicts"], ["mode", "All failure modes"], ["communication", "All communication"], ["decision", "All speeds"], ["platform", "All platforms"], ["size", "All sizes"], ["backend", "All backends"]];
  var plain = function (word) { return String(word).replace(/_/g, " "); };

  function read(data) {
    var worded = data.words;
    return data.rows.map(function (values) {
      var row = {};
      data.fields.forEach(function (name, index) { row[name] = worded[name] ? worded[name][values[index]] : values[index]; });
      row.stem = data.stems[row.problem];
      row.text = [row.stem, row.contender, row.backend, row.verdict, row.mode, row.detail, row.platform, row.hardware, row.size, row.dtype].join(" ").toLowerCase();
      return row;
    });
  }

  var COLUMNS = [
    { key: "problem", title: "Problem", number: true, show: "problem", cell: function (row) { return [el("a", { class: "name", href: P.root + "p/" + row.stem + ".html" }, P.broken(row.stem))]; } },
    { key: "contender", title: "Collection", cell: function (row) { return P.broken(row.contender).concat([el("small", {}, " " + row.backend + (row.sample ? ", try " + (row.sample + 1) : "")), el("a", { class: "anchor", href: "#row-" + row.slug, "aria-label": "Link to row " + row.slug }, "#")]); } },
    { key: "verdict", title: "Verdict", cell: function (row) { return [el("a", { class: "pill m-" + VERDICT_MODE[row.verdict], href: P.root + "c/" + row.slug + ".html" }, plain(row.verdict))]; } },
    { key: "speedup", title: "Speedup", number: true, cell: function (row) {
      if (row.speedup === null) return [el("span", { class: "none" }, row.verdict === "correct" ? "not timed" : "–")];
      return [el("b", { class: row.decision === "faster" ? "up" : row.decision === "slower" ? "down" : "" }, P.times(row.speedup)), el("span", { class: "interval" }, "[" + P.times(row.low) + ", " + P.times(row.high) + "]" + (row.decision === "unproven" ? " unproven" : "")), row.other_speedup === null ? "" : el("span", { class: "sub" }, P.times(row.other_speedup) + (row.against === "baseline" ? " against the reference" : " against the baseline"))];
    } },
    { key: "candidate_us", title: "Time", number: true, wide: true, cell: function (row) { return row.candidate_us === null ? [] : [P.text(P.time(row.candidate_us)), el("span", { class: "sub" }, row.against + " " + P.time(row.reference_us)), row.bus_gbps === null ? "" : el("span", { class: "sub" }, "algBW " + row.alg_gbps + ", busBW " + row.bus_gbps + " GB/s")]; } },
    { key: "utilisation", title: "Utilisation", number: true, wide: true, cell: function (row) { return row.utilisation === null ? [] : [P.text((100 * row.utilisation).toFixed(0) + " %")]; } },
    { key: "communication", title: "Moved by", wide: true, cell: function (row) { return [P.text(row.communication)]; } },
    { key: "platform", title: "Taken on", wide: true, style: " on", cell: function (row) { return [P.text(row.platform + ", " + row.ranks + " ranks"), el("span", { class: "sub" }, [row.hardware, row.size, row.dtype].filter(Boolean).join(" · "))]; } },
    { key: "cost", title: "Cost", number: true, wide: true, cell: function (row) { return row.cost === null ? [] : [P.text("$" + row.cost.toFixed(row.cost < 1 ? 3 : 2)), row.steps ? el("span", { class: "sub" }, row.steps + (row.steps === 1 ? " step" : " steps")) : ""]; } },
    { key: "detail", title: "Said", wide: true, cell: function (row) { return [el("div", { class: "detail", title: row.detail }, row.detail)]; } }
  ];

  function start(box) {
    var data = (window.PKB_DATA || {})[box.dataset.source];
    if (!data) { box.append(el("p", { class: "note bad" }, "The data of this table could not be loaded.")); return; }
    var all = read(data), size = Number(box.dataset.size || 50), page = 0, sort = null, down = false, shown = [];
    var shows = box.dataset.show.split(" ");
    var columns = COLUMNS.filter(function (column) { return (!column.show || shows.indexOf(column.show) >= 0) && (column.key !== "cost" || all.some(function (row) { return row.cost !== null; })) && (column.key !== "utilisation" || all.some(function (row) { return row.utilisation !== null; })) && (column.key !== "candidate_us" || all.some(function (row) { return row.candidate_us !== null; })); });
    var search = el("input", { type: "search", class: "search", placeholder: "Search  /", "aria-label": "Search verdicts" });
    var tools = el("div", { class: "tools" }, [search]), selects = {};
    FILTERS.forEach(function (filter) {
      var words = data.words[filter[0]].filter(Boolean);
      if (words.length < 2) return;
      var choice = el("select", { "aria-label": filter[1], "data-filter": filter[0] }, [el("option", { value: "" }, filter[1])].concat(words.slice().sort().map(function (word) { return el("option", { value: word }, plain(word)); })));
      choice.addEventListener("change", function () { P.setSetting(filter[0], choice.value); page = 0; apply(); });
      selects[filter[0]] = choice;
      tools.append(choice);
    });
    tools.append(el("span", { class: "gets" }, ["csv", "json"].map(function (kind) { return el("a", { class: "get", href: P.root + kind + "/" + box.dataset.tableName + "." + kind, download: "" }, kind.toUpperCase()); })));
    var body = el("tbody"), heads = columns.map(function (column) {
      var head = el("th", { class: (column.number && column.key !== "problem" ? "num" : "") + (column.wide ? " wide" : ""), scope: "col", "data-sort": "", tabindex: "0" }, column.title);
      function turn() {
        down = sort === column.key ? !down : Boolean(column.number) && column.key !== "problem";
        sort = column.key; page = 0;
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        P.setSetting("sort", (down ? "-" : "") + sort);
        apply();
      }
      head.addEventListener("click", turn);
      head.addEventListener("keydown", function (event) { if (event.key === "Enter") { event.stopPropagation(); turn(); } });
      return head;
    });
    var table = el("table", { class: "plain list" }, [el("thead", {}, [el("tr", {}, heads)]), body]);
    var before = el("button", { type: "button" }, "← Back"), after = el("button", { type: "button" }, "Next →"), said = el("span", { "aria-live": "polite", class: "said-count" });
    before.addEventListener("click", function () { page -= 1; draw(); });
    after.addEventListener("click", function () { page += 1; draw(); });
    box.append(tools, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "verdicts" }, [table]), el("div", { class: "pager" }, [before, after, said]));

    function apply() {
      var words = search.value.toLowerCase().split(/\s+/).filter(Boolean), wanted = Object.keys(selects).filter(function (name) { return selects[name].value; });
      shown = all.filter(function (row) {
        return wanted.every(function (name) { return row[name] === selects[name].value; }) && words.every(function (word) { return row.text.indexOf(word) >= 0; });
      });
      if (sort) {
        shown.sort(function (a, b) {
          var x = a[sort], y = b[sort];
          if (x === null || y === null) return (x === null) - (y === null);  // what is not known comes last either way
          var order = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
          return down ? -order : order;
        });
      }
      draw();
    }
    function draw() {
      var pages = Math.max(1, Math.ceil(shown.length / size));
      page = Math.max(0, Math.min(page, pages - 1));
      P.deselect();
      body.replaceChildren.apply(body, shown.slice(page * size, (page + 1) * size).map(function (row) {
        return el("tr", { id: "row-" + row.slug, "data-href": P.root + "c/" + row.slug + ".html", tabindex: "-1" }, columns.map(function (column) {
          return el("td", { class: (column.number && column.key !== "problem" ? "num" : "") + (column.wide ? " wide" : "") + (column.style || "") }, column.cell(row));
        }));
      }));
      if (!shown.length) body.append(el("tr", {}, [el("td", { colspan: String(columns.length), class: "dim" }, "No verdict fits this filter.")]));
      said.textContent = shown.length ? (page * size + 1) + "–" + Math.min(shown.length, (page + 1) * size) + " of " + shown.length + (shown.length < all.length ? " (" + all.length + " in all)" : "") : "0 of " + all.length;
      before.disabled = page === 0; after.disabled = page >= pages - 1;
    }
    search.addEventListener("input", function () { P.setSetting("q", search.value); page = 0; apply(); });

    function fromAddress() {
      var asked = P.settings();
      search.value = asked.get("q") || "";
      Object.keys(selects).forEach(function (name) { selects[name].value = asked.get(name) || ""; });
      var order = asked.get("sort") || "", key = order.replace(/^-/, "");
      if (columns.some(function (column) { return column.key === key; })) { sort = key; down = order[0] === "-"; }
      apply();
      if (location.hash.indexOf("#row-") === 0) {
        var slug = decodeURIComponent(location.hash.slice(5)), at = shown.findIndex(function (row) { return row.slug === slug; });
        if (at >= 0) {
          page = Math.floor(at / size); draw();
          var row = document.getElementById("row-" + slug);
          row.classList.add("aimed"); row.scrollIntoView({ block: "center" });
        }
      }
    }
    window.addEventListener("hashchange", fromAddress);
    fromAddress();
  }
  document.querySelectorAll(".verdict-table").forEach(start);
})();
