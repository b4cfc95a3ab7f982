// What every page has: theme, tabs, filters and sorting of plain tables, keyboard. No network, no dependencies.
(function () {
  "use strict";
  var root = document.body.dataset.root || "";

  // -- theme ----------------------------------------------------------------------------------------------------------
  function isDark() {
    var chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function toggleTheme() {
    var next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("pkb-theme", next); } catch (error) { /* then it lasts for this page only */ }
    document.dispatchEvent(new Event("pkb-theme"));
  }
  document.getElementById("theme").addEventListener("click", toggleTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { document.dispatchEvent(new Event("pkb-theme")); });

  // -- the part of the address behind #: either the id of a row or settings, a=b&c=d ------------------------------------
  function settings() {
    var text = location.hash.slice(1);
    return new URLSearchParams(text.indexOf("=") >= 0 ? text : "");
  }
  function setSetting(name, value) {
    var all = settings();
    if (value) all.set(name, value); else all.delete(name);
    var text = all.toString();
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  }

  // -- tabs -----------------------------------------------------------------------------------------------------------
  document.querySelectorAll("[data-tabs]").forEach(function (bar) {
    var section = bar.closest("section"), buttons = Array.from(bar.querySelectorAll("[data-tab]"));
    function show(name) {
      buttons.forEach(function (button) { button.setAttribute("aria-selected", String(button.dataset.tab === name)); button.tabIndex = button.dataset.tab === name ? 0 : -1; });
      section.querySelectorAll("[data-panel]").forEach(function (panel) { panel.hidden = panel.dataset.panel !== name; });
    }
    function names() { return buttons.map(function (button) { return button.dataset.tab; }); }
    bar.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], at = buttons.indexOf(document.activeElement);
      if (step && at >= 0) { var next = buttons[(at + step + buttons.length) % buttons.length]; next.focus(); next.click(); }
    });
    buttons.forEach(function (button) {
      button.addEventListener("click", function () { show(button.dataset.tab); setSetting(bar.dataset.tabs, button.dataset.tab); });
    });
    var wanted = settings().get(bar.dataset.tabs);
    var aimed = location.hash.indexOf("=") < 0 && location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    var panel = aimed && section.contains(aimed) ? aimed.closest("[data-panel]") : null;
    var full = buttons.filter(function (button) { return !button.classList.contains("hollow"); })[0] || buttons[0];
    show(panel ? panel.dataset.panel : names().indexOf(wanted) >= 0 ? wanted : full.dataset.tab);
    if (panel) aimed.scrollIntoView({ block: "center" });
  });

  // -- plain tables: filter and sort ------------------------------------------------------------------------------------
  function rowsOf(table) { return Array.from(table.querySelectorAll("tbody tr")); }
  document.querySelectorAll("[data-filters]").forEach(function (input) {
    var tables = document.querySelectorAll('[data-table="' + input.dataset.filters + '"]'), only = document.getElementById("attempted");
    function apply() {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      tables.forEach(function (table) {
        rowsOf(table).forEach(function (row) {
          if (row.classList.contains("divider")) return;
          var text = row.textContent.toLowerCase();
          row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; }) || (only && only.checked && row.dataset.tries === "0");
        });
      });
    }
    input.addEventListener("input", function () { apply(); setSetting("q", input.value); });
    if (only) only.addEventListener("change", apply);
    input.value = settings().get("q") || "";
    if (input.value) apply();
  });
  document.querySelectorAll("[data-table] th[data-sort]").forEach(function (head) {
    head.tabIndex = 0;
    function sort() {
      var table = head.closest("table"), column = Array.from(head.parentNode.children).indexOf(head), numbers = head.dataset.sort === "n";
      var down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numbers && column > 0;
      table.querySelectorAll("th").forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.querySelectorAll("tbody").forEach(function (body) {
        Array.from(body.children).filter(function (row) { return !row.classList.contains("divider"); }).map(function (row) {
          var value = row.children[column].dataset.v || "";
          return [numbers ? parseFloat(value) : value, row];
        }).sort(function (a, b) {
          var order = numbers ? a[0] - b[0] : String(a[0]).localeCompare(String(b[0]));
          return down ? -order : order;
        }).forEach(function (pair) { body.appendChild(pair[1]); });
      });
    }
    head.addEventListener("click", sort);
    head.addEventListener("keydown", function (event) { if (event.key === "Enter") { event.stopPropagation(); sort(); } });
  });

  // -- rows by mouse and keyboard ---------------------------------------------------------------------------------------
  var current = null;
  function openRow(row) { location.href = row.dataset.href; }
  document.addEventListener("click", function (event) {
    var row = event.target.closest("tr[data-href]");
    if (row && !event.target.closest("a, button, input, summary") && !String(getSelection())) openRow(row);
  });
  function select(row) {
    if (current) current.classList.remove("current");
    current = row;
    if (!row) return;
    row.classList.add("current");
    row.scrollIntoView({ block: "nearest" });
    row.focus({ preventScroll: true });
  }
  function move(step) {
    var rows = Array.from(document.querySelectorAll("tr[data-href]")).filter(function (row) { return row.offsetParent !== null; });
    if (!rows.length) return;
    var at = rows.indexOf(current);
    select(rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + step))]);
  }
  var help = document.getElementById("keys");
  document.getElementById("keys-button").addEventListener("click", function () { help.showModal(); });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    var typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
    if (event.key === "Escape") {
      if (typing) { if (event.target.value && event.target.type === "search") { event.target.value = ""; event.target.dispatchEvent(new Event("input")); } event.target.blur(); }
      select(null);
    } else if (typing) {
      if (event.key === "Enter" && event.target.type === "search") { event.target.blur(); select(null); move(1); event.preventDefault(); }
    } else if (event.key === "/") {
      var box = Array.from(document.querySelectorAll("input[type=search]")).filter(function (one) { return one.offsetParent !== null; })[0];
      if (box) { event.preventDefault(); box.focus(); box.select(); }
    } else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "Enter" && current && (document.activeElement === current || document.activeElement === document.body)) openRow(current);
    else if (event.key === "t") toggleTheme();
    else if (event.key === "?") help.showModal();
  });

  // Characters that turn text around or that no font shows: drawn as their code point, as the pages do.
  var INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
  function visible(value) { return String(value).replace(INVISIBLE, function (found) { return "⟨U+" + found.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩"; }); }

  var inline = document.getElementById("page-data"), loading = {};
  function load(src) {
    // A page opened from disk may add scripts but not fetch files, so data comes as scripts too.
    if (!loading[src]) {
      loading[src] = new Promise(function (done, fail) {
        var script = document.createElement("script");
        script.src = src; script.onload = done;
        script.onerror = function () { delete loading[src]; fail(new Error("cannot load " + src)); };
        document.head.appendChild(script);
      });
    }
    return loading[src];
  }
  window.PKB = {
    root: root, isDark: isDark, settings: settings, setSetting: setSetting, load: load, visible: visible, deselect: function () { select(null); },
    data: inline ? JSON.parse(inline.textContent) : {},
    element: function (tag, attributes, children) {
      // The only way this site makes elements: text is always text, whatever a model wrote.
      var made = document.createElement(tag);
      Object.keys(attributes || {}).forEach(function (name) { if (attributes[name] !== null && attributes[name] !== undefined) made.setAttribute(name, attributes[name]); });
      [].concat(children === undefined ? [] : children).forEach(function (child) { if (child !== null) made.append(typeof child === "string" ? visible(child) : child); });
      return made;
    },
    // A name as pieces with places where a line may end, as JOINT in words.py.
    broken: function (value) { return visible(value).split(/(?<=[_/])(?=\w)|(?<=[.,:-])(?=[A-Za-z])/).reduce(function (made, part) { return made.concat(made.length ? [document.createElement("wbr")] : [], [part]); }, []); },
    text: function (value) { return document.createTextNode(visible(value)); },
    times: function (x) { return x === null || x === undefined ? "–" : x.toFixed(x < 100 ? 2 : 0) + "×"; },
    time: function (us) { return us === null || us === undefined ? "–" : us < 9999.5 ? +us.toPrecision(4) + " µs" : us < 9999500 ? +(us / 1e3).toPrecision(4) + " ms" : +(us / 1e6).toPrecision(4) + " s"; }
  };

  // -- a trace, handed to ui.perfetto.dev as its documentation asks: it answers PONG when it is ready, then takes a buffer ------------
  var PERFETTO = "https://ui.perfetto.dev";
  document.querySelectorAll("[data-perfetto]").forEach(function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var opened = window.open(PERFETTO), asking = opened && setInterval(function () { opened.postMessage("PING", PERFETTO); }, 100);
      if (opened) load(button.dataset.perfetto).then(function () {
        window.addEventListener("message", function answer(event) {
          if (event.source !== opened || event.origin !== PERFETTO || event.data !== "PONG") return;
          clearInterval(asking); window.removeEventListener("message", answer);
          var bytes = new TextEncoder().encode(JSON.stringify(window.PKB_DATA[button.dataset.name]));
          opened.postMessage({ perfetto: { buffer: bytes.buffer, title: document.title } }, PERFETTO);
        });
      });
      if (opened) setTimeout(function () { clearInterval(asking); }, 60000);
    });
  });
})();
