// Loaded before the page is drawn, so that a chosen theme does not flash.
(function () {
  "use strict";
  var stored = null;
  try { stored = localStorage.getItem("pkb-theme"); } catch (error) { /* storage may be forbidden: then the system decides */ }
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  document.documentElement.classList.add("scripted");
})();
